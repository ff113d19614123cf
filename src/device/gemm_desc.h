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

#include "base/dtype.h"

namespace esm::device {

enum class GemmEpilogue : uint8_t {
  kNone,
  kBias,          // D[i, :] += bias[i], length m, type of D
  kBiasGradient,  // bias_gradient[j] = sum over k of op(B)[:, j], length n, type of D; overwritten, never added to
};

/// Operands FP32 or BF16 (both the same), D FP32 or BF16 (BF16 only from BF16 operands), sums in FP32 without TF32.
struct GemmDesc {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;  // in elements; C has D's
  bool transpose_a = false, transpose_b = false;
  DType operands = DType::kBF16;
  DType d = DType::kBF16;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  bool accumulate = false;       // beta 1: D = op(A) op(B) + C, with C of D's type, C == D allowed
  int64_t alignment_bytes = 16;  // every pointer has at least this one

  bool operator==(const GemmDesc&) const = default;

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

struct GemmDescHash {
  size_t operator()(const GemmDesc& desc) const noexcept;
};

/// InternalError naming what does not fit.
void check(const GemmDesc& desc);

/// All of it on one line, also the key in the plan file:
/// "m=1280 n=65536 k=5120 lda=5120 ldb=5120 ldd=1280 op=TN in=BF16 out=BF16 epilogue=bias beta=1 align=16".
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

/// dweight[out, in] (+)= dy[T, out]^T x[T, in]; dbias[out] = column sums of dy, of dweight's type.
struct LinearWgradGemm {
  int64_t tokens = 0, out = 0, in = 0;
  DType operands = DType::kBF16;
  DType dweight = DType::kF32;
  bool accumulate = true;
  bool dbias = false;
  GemmDesc desc() const;
};

}  // namespace esm::device
