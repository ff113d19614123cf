#include "ops/gelu.h"

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/linear.h"

namespace esm::ops {

void gelu(Workspace& ws, Gelu form, const at::Tensor& x, const GemmOperand& y) {
  if (on_cuda(ws.context(), "gelu", {x, y.values})) return cuda::gelu(ws, form, x, y);
  const device::Phase phase(ws.context(), "GELU forward");
  with_element(x, [&](auto element) {
    using T = decltype(element);
    cpu::gelu(form == Gelu::kTanh, x.numel(), data<T>(x), data<T>(y.values));
  });
  quantize_operand(ws, y);
}

void gelu_backward(Workspace& ws, Gelu form, const GeluBackward& a) {
  if (on_cuda(ws.context(), "gelu_backward", {a.x, a.dy, a.dx.values, a.y.values, a.dx_sum}))
    return cuda::gelu_backward(ws, form, a);
  const device::Phase phase(ws.context(), "GELU backward");
  with_element(a.x, [&](auto element) {
    using T = decltype(element);
    cpu::gelu_backward(form == Gelu::kTanh, a.x.numel(), data<T>(a.x), data<T>(a.dy), data<T>(a.dx.values),
                       data_or_null<T>(a.y.values));
  });
  if (a.dx_sum.defined()) add_column_sums(ws, a.dx.values, a.dx_sum);
  quantize_operand(ws, a.dx);
  quantize_operand(ws, a.y);
}

void expect_gelu_backward(Workspace& ws, int64_t rows, int64_t cols) {
  if (!ws.context().on_cuda()) return expect_column_sums(ws, rows, cols);
  ws.expect(Workspace::kPartials, cuda::gelu_backward_floats(rows, cols));
}

}  // namespace esm::ops
