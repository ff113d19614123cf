// The products of a linear layer in FP8 and FP4, what such products cannot take, and where the factors of their
// operands lie.
//
// Both operands have k contiguous ("TN"), as FP8 tensor cores before Blackwell and those for FP4 read them, so that the
// three products read different copies of row-major X[T, in], W[out, in], dY[T, out] (gemm_desc.h has the column-major
// view):
//   forward  m = out, n = T,   k = in    A = W [out, in]    B = X [T, in]
//   dgrad    m = in,  n = T,   k = out   A = W^T [in, out]  B = dY [T, out]
//   wgrad    m = in,  n = out, k = T     A = X^T [in, T]    B = dY^T [out, T]
// Groups of kMx32 and kNv16 lie along k, so that each copy has codes of its own. The value of an element of kNv16 is
// code * scale of the group * scale of the tensor; cuBLASLt applies the first two, and the product of the two tensors'
// scales comes in as alpha (device_factors).
// Source: cuBLAS 13.0 manual, cublasLtMatmul() ("FP8 kernels"), "128-element 1D and 128x128 2D block scaling" and "1D
// Block Scaling Factors Layout".
#pragma once
#include <string>

#include "device/gemm_desc.h"

namespace esm::device {

/// Why no product of codes is like `desc` ("k = 33 is no multiple of 16"), for a log line on what is computed in BF16
/// instead; empty when nothing is known against it, and for a product without codes. What a device lacks beyond that
/// GemmContext::supported() tells.
std::string fp8_obstacle(const GemmDesc& desc);

/// Least compute capability (90 for 9.0) with FP8 tensor cores.
inline constexpr int kLeastFp8Capability = 89;
/// Least one with tensor cores that apply scales of small groups.
inline constexpr int kLeastMxCapability = 100;
/// What devices of that compute capability lack for `desc`, as NVIDIA's manual has it; empty when nothing is known: one
/// scale a tensor from 8.9 on, kMx32 and kNv16 from 10.0 on, all other modes on 9.0 only.
std::string fp8_device_obstacle(const GemmDesc& desc, int capability);

/// Factors of an operand whose `rows` (m for A, n for B) have k elements each. kTensor: 1; kOuterVector: [rows];
/// kVector128: [k / 128, rows]; kBlock128: [rows / 128, k / 128 padded to a multiple of 4]; kMx32, kNv16:
/// kernels::group_scale_index(); quotients rounded up.
int64_t scale_count(GemmScale scale, int64_t rows, int64_t k);
/// Index of the factor of element `i` of row `row`.
int64_t scale_index(GemmScale scale, int64_t rows, int64_t k, int64_t row, int64_t i);

struct Fp8Operand {
  DType dtype = DType::kF8E4M3;
  GemmScale scale = GemmScale::kTensor;
};

/// y[T, out] = x[T, in] weight[out, in]^T (+ bias[out]) (+ residual[T, out]).
struct Fp8ForwardGemm {
  int64_t tokens = 0, out = 0, in = 0;
  Fp8Operand weight, x;
  bool fast_accumulation = false;
  DType y = DType::kBF16;  // also of residual; the bias is BF16
  bool bias = false;
  bool residual = false;
  GemmDesc desc() const;
};

/// dx[T, in] = dy[T, out] weight_t[in, out]^T.
struct Fp8DgradGemm {
  int64_t tokens = 0, out = 0, in = 0;
  Fp8Operand weight_t, dy;
  bool fast_accumulation = false;
  DType dx = DType::kBF16;
  GemmDesc desc() const;
};

/// dweight[out, in] (+)= dy_t[out, T] x_t[in, T]^T.
struct Fp8WgradGemm {
  int64_t tokens = 0, out = 0, in = 0;
  Fp8Operand x_t, dy_t;
  bool fast_accumulation = false;
  DType dweight = DType::kF32;
  bool accumulate = true;
  GemmDesc desc() const;
};

}  // namespace esm::device
