// Y = X W^T + b and its gradients. GEMM operands are FP32 or BF16, sums FP32. On the CPU BF16 operands are widened to
// FP32 in scratch and multiplied there: the same numbers as a BF16 GEMM with FP32 accumulation, and faster than
// LibTorch's on CPUs without BF16 units.
#pragma once
#include "ops/workspace.h"

namespace esm::ops {

/// y[T, n] = x[T, k] weight[n, k]^T + bias[n] (+ residual[T, n]). residual may be undefined, or y itself; bias may be
/// undefined only without residual; both have x's type. y may be FP32 when the operands are BF16.
struct LinearForward {
  at::Tensor x, weight, bias, residual, y;
};
void linear(Workspace& ws, const LinearForward& a);

/// dx[T, k] = dy[T, n] weight[n, k].
struct LinearDgrad {
  at::Tensor dy, weight, dx;
};
void linear_dgrad(Workspace& ws, const LinearDgrad& a);

/// dweight[n, k] (+)= dy[T, n]^T x[T, k], FP32.
struct LinearWgrad {
  at::Tensor dy, x, dweight;
  bool accumulate = true;  // else dweight is overwritten, whatever it held
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

/// sums[c] += column sums of x[T, c]; FP32 sums of blocks of fixed size, so equal for any number of threads.
void add_column_sums(Workspace& ws, const at::Tensor& x, const at::Tensor& sums);
/// Announces it to `ws`.
void expect_column_sums(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
