// GELU (Hendrycks & Gimpel 2016), elementwise.
#pragma once
#include "ops/gemm_operand.h"

namespace esm::ops {

/// kErf: x/2 (1 + erf(x / sqrt 2)), within 1e-7 relative. kTanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
enum class Gelu { kErf, kTanh };

/// y = gelu(x), an operand of the linear that follows; y may be x.
void gelu(Workspace& ws, Gelu form, const at::Tensor& x, const GemmOperand& y);

/// dx = dy gelu'(x), an operand of the linear before; its values may be dy. y, if there is one, receives gelu(x) again,
/// for the weight gradient of the linear that follows. dx_sum, if defined, [F] FP32 += column sums of dx: the bias
/// gradient of the linear before.
struct GeluBackward {
  at::Tensor x, dy;
  GemmOperand dx, y;
  at::Tensor dx_sum;
};
void gelu_backward(Workspace& ws, Gelu form, const GeluBackward& a);
/// Announces to `ws` what that will ask for.
void expect_gelu_backward(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
