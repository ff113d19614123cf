// What a matrix product is: shapes, types, epilogue. No CUDA needed; the key of plans and of the plan file.
//
// cuBLASLt counts columns first: D[m, n] = op(A)[m, k] op(B)[k, n] with columns `ld` elements apart. A row-major matrix
// is the same memory as its transpose in that view, so that the three products of a linear layer over row-major
// X[T, in], W[out, in], Y[T, out] are
//   forward  Y = X W^T (+ bias) (+ C)   m = out, n = T,   k = in    A = W transposed,  B = X
//   dgrad    dX = dY W                  m = in,  n = T,   k = out   A = W,             B = dY
//   wgrad    dW (+)= dY^T X             m = in,  n = out, k = T     A = X,             B = dY transposed
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace esm::device {

enum class GemmEpilogue : uint8_t {
  kNone,
  kBias,  // D[i, :] += bias[i], length m, of bias_type()
};

constexpr bool is_fp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

/// Codes: FP8, or pairs of FP4.
constexpr bool is_code(DType dtype) { return is_fp8(dtype) || dtype == DType::kF4E2M1x2; }

/// What one factor of an operand in codes stands for; gemm_fp8.h has their order in memory. FP32, unless said.
enum class GemmScale : uint8_t {
  kNone,         // FP32 and BF16 operands
  kTensor,       // all elements
  kOuterVector,  // a row of op(A), a column of op(B)
  kVector128,    // 128 elements of such a row or column
  kBlock128,     // 128 elements of each of 128 rows or columns
  kMx32,         // 32 elements of such a row or column; UE8M0
  kNv16,         // 16 elements of such a row or column; UE4M3
};

/// Operands FP32 or BF16 (both the same), or codes with factors: the value of an element is that of its code times its
/// factor (which for kTensor and kOuterVector is applied to the sum). D FP32, or BF16 but not from FP32. Sums in FP32
/// without TF32; from FP8 on Hopper, with fast accumulation, in about 14 bits.
struct GemmDesc {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;  // in elements (of FP4: in values, not pairs); C has D's
  bool transpose_a = false, transpose_b = false;
  DType a = DType::kBF16, b = DType::kBF16;
  GemmScale scale_a = GemmScale::kNone, scale_b = GemmScale::kNone;
  bool fast_accumulation = false;  // FP8: partial sums stay in the tensor cores
  DType d = DType::kBF16;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  bool accumulate = false;       // beta 1: D = op(A) op(B) + C, with C of D's type, C == D allowed
  bool device_factors = false;   // D = alpha op(A) op(B) (+ bias) + beta C, both numbers read from device memory
  int64_t alignment_bytes = 16;  // every pointer has at least this one

  bool operator==(const GemmDesc&) const = default;

  bool in_codes() const { return is_code(a) || is_code(b); }
  /// That of D; BF16 for codes, whose kernels take no other.
  DType bias_type() const { return in_codes() ? DType::kBF16 : d; }
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

/// Memory of so many elements of an operand.
constexpr int64_t operand_bytes(DType dtype, int64_t elements) {
  return dtype == DType::kF4E2M1x2 ? (elements + 1) / 2 : elements * size_of(dtype);
}

/// "tensor", "outer", "vector128", "block128", "mx32", "nv16".
std::string_view scale_name(GemmScale scale);

struct GemmDescHash {
  size_t operator()(const GemmDesc& desc) const noexcept;
};

/// InternalError naming what does not fit. (gemm_fp8.h asks first.)
void check(const GemmDesc& desc);

/// All of it on one line, also the key in the plan file:
/// "m=1280 n=65536 k=5120 lda=5120 ldb=5120 ldd=1280 op=TN in=BF16 out=BF16 epilogue=bias beta=1 align=16"; for codes
/// "... in=F8_E4M3/F8_E5M2 ... align=16 scale=tensor/tensor sums=fast", with device_factors "... factors=device".
std::string text(const GemmDesc& desc);

/// y[T, out] = x[T, in] weight[out, in]^T (+ bias[out]) (+ residual[T, out]).
struct LinearForwardGemm {
  int64_t tokens = 0, out = 0, in = 0;
  DType operands = DType::kBF16;
  DType y = DType::kBF16;  // also of bias and residual
  bool bias = false;
  bool residual = false;
  GemmDesc desc() const;
};

/// dx[T, in] = dy[T, out] weight[out, in].
struct LinearDgradGemm {
  int64_t tokens = 0, out = 0, in = 0;
  DType operands = DType::kBF16;
  DType dx = DType::kBF16;
  GemmDesc desc() const;
};

/// dweight[out, in] (+)= dy[T, out]^T x[T, in].
struct LinearWgradGemm {
  int64_t tokens = 0, out = 0, in = 0;
  DType operands = DType::kBF16;
  DType dweight = DType::kF32;
  bool accumulate = true;
  GemmDesc desc() const;
};

}  // namespace esm::device
