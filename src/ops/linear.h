// Y = X W^T + b and its gradients. GEMM operands are FP32, BF16 or codes of both, sums FP32. On the CPU BF16 operands
// are widened to FP32 in scratch and multiplied there: the same numbers as a BF16 GEMM with FP32 accumulation, and
// faster than LibTorch's on CPUs without BF16 units.
#pragma once
#include "ops/gemm_operand.h"
#include "precision/linear_formats.h"

namespace esm::ops {

/// y[T, n] = x[T, k] weight[n, k]^T + bias[n] (+ residual[T, n]). residual may be undefined, or y itself; bias may be
/// undefined only without residual; both have x's type. y may be FP32 when the operands are BF16.
struct LinearForward {
  GemmOperand x, weight;  // codes of both by rows, or neither in codes
  at::Tensor bias, residual, y;
  bool fast_accumulation = false;  // of codes: sums stay in the tensor cores, about 14 bits
};
void linear(Workspace& ws, const LinearForward& a);

/// dx[T, k] = dy[T, n] weight[n, k].
struct LinearDgrad {
  GemmOperand dy, weight;  // codes of dy by rows, of weight by columns
  at::Tensor dx;
  bool fast_accumulation = false;
};
void linear_dgrad(Workspace& ws, const LinearDgrad& a);

/// dweight[n, k] (+)= dy[T, n]^T x[T, k], FP32.
struct LinearWgrad {
  GemmOperand dy, x;  // codes of both by columns
  at::Tensor dweight;
  bool accumulate = true;  // else dweight is overwritten, whatever it held
  bool fast_accumulation = false;
};
void linear_wgrad(Workspace& ws, const LinearWgrad& a);

/// Announces to `ws` what the products of a [out, in] weight over `tokens` rows of `type` will ask for, gradients
/// included with `training`.
struct LinearSizes {
  int64_t tokens = 0, out = 0, in = 0;
  at::ScalarType type = at::kFloat;
  bool training = true;
};
void expect_linear(Workspace& ws, const LinearSizes& sizes);

/// `formats` as the device of `context` can really multiply them: where cuBLASLt proposes no kernel for one of the
/// products in MXFP8 or NVFP4, emulated, with the reason. Other formats, and those of a sketch, as they are.
precision::LinearFormats as_supported(const Context& context, const precision::LinearFormats& formats,
                                      const LinearSizes& sizes);

/// sums[c] += column sums of x[T, c]; FP32 sums of blocks of fixed size, so equal for any number of threads.
void add_column_sums(Workspace& ws, const at::Tensor& x, const at::Tensor& sums);
/// Announces it to `ws`.
void expect_column_sums(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
