// y = (x - mean) * rstd * weight + bias over each row of D elements; variance over D, rstd = 1 / sqrt(var + eps).
#pragma once
#include "ops/workspace.h"

namespace esm::ops {

/// x, y [T, D]; weight, bias [D] of the same type; mean, rstd [T] FP32, kept for backward.
struct LayerNormForward {
  at::Tensor x, weight, bias, y, mean, rstd;
  double eps = 1e-5;
};
void layer_norm(const Context& context, const LayerNormForward& a);

/// dx = gradient (or, with accumulate, dx += it: the residual stream's gradient is already there);
/// dweight, dbias [D] FP32 are added to. y, if defined, receives the forward output again, for the weight gradient of
/// the linear that follows; it may be dy itself. dx_sum, if defined, [D] FP32 += column sums of the resulting dx: the
/// bias gradient of the linear before.
struct LayerNormBackward {
  at::Tensor x, weight, bias, mean, rstd, dy, dx, y, dweight, dbias, dx_sum;
  bool accumulate = false;
};
void layer_norm_backward(Workspace& ws, const LayerNormBackward& a);
/// Announces to `ws` what that will ask for.
void expect_layer_norm_backward(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
