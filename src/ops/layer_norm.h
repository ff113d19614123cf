// y = (x - mean) * rstd * weight + bias over each row of D elements; variance over D, rstd = 1 / sqrt(var + eps).
#pragma once
#include "ops/gemm_operand.h"

namespace esm::ops {

/// x, y [T, D], y an operand of the linear that follows; weight, bias [D] of the same type; mean, rstd [T] FP32, kept
/// for backward.
struct LayerNormForward {
  at::Tensor x, weight, bias;
  GemmOperand y;
  at::Tensor mean, rstd;
  double eps = 1e-5;
};
void layer_norm(Workspace& ws, const LayerNormForward& a);

/// dx = gradient (or, with accumulate, dx += it: the residual stream's gradient is already there), values in any case,
/// and codes for the linear before; dweight, dbias [D] FP32 are added to. y, if there is one, receives the forward
/// output again, for the weight gradient of the linear that follows; its values may be dy itself. dx_sum, if defined,
/// [D] FP32 += column sums of the resulting dx: the bias gradient of the linear before.
struct LayerNormBackward {
  at::Tensor x, weight, bias, mean, rstd, dy;
  GemmOperand dx, y;
  at::Tensor dweight, dbias, dx_sum;
  bool accumulate = false;
};
void layer_norm_backward(Workspace& ws, const LayerNormBackward& a);
/// Announces to `ws` what that will ask for.
void expect_layer_norm_backward(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
