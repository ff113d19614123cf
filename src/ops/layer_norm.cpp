#include "ops/layer_norm.h"

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/linear.h"

namespace esm::ops {

void layer_norm(Workspace& ws, const LayerNormForward& a) {
  if (on_cuda(ws.context(), "layer_norm", {a.x, a.weight, a.bias, a.y.values, a.mean, a.rstd}))
    return cuda::layer_norm(ws, a);
  const device::Phase phase(ws.context(), "layer norm forward");
  with_element(a.x, [&](auto element) {
    using T = decltype(element);
    cpu::layer_norm<T>({.rows = a.x.size(0),
                        .cols = a.x.size(1),
                        .x = data<T>(a.x),
                        .weight = data<T>(a.weight),
                        .bias = data<T>(a.bias),
                        .eps = static_cast<float>(a.eps),
                        .y = data<T>(a.y.values),
                        .mean = data<float>(a.mean),
                        .rstd = data<float>(a.rstd)});
  });
  quantize_operand(ws, a.y);
}

void layer_norm_backward(Workspace& ws, const LayerNormBackward& a) {
  if (on_cuda(ws.context(), "layer_norm_backward",
              {a.x, a.weight, a.bias, a.mean, a.rstd, a.dy, a.dx.values, a.y.values, a.dweight, a.dbias, a.dx_sum}))
    return cuda::layer_norm_backward(ws, a);
  const device::Phase phase(ws.context(), "layer norm backward");
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const at::Tensor partials = ws.floats(Workspace::kPartials, 2 * cpu::sum_blocks(rows) * cols);
  with_element(a.x, [&](auto element) {
    using T = decltype(element);
    cpu::layer_norm_backward<T>({.rows = rows,
                                 .cols = cols,
                                 .x = data<T>(a.x),
                                 .weight = data<T>(a.weight),
                                 .bias = data<T>(a.bias),
                                 .mean = data<float>(a.mean),
                                 .rstd = data<float>(a.rstd),
                                 .dy = data<T>(a.dy),
                                 .dx = data<T>(a.dx.values),
                                 .accumulate = a.accumulate,
                                 .y = data_or_null<T>(a.y.values),
                                 .dweight = data<float>(a.dweight),
                                 .dbias = data<float>(a.dbias),
                                 .partials = data<float>(partials)});
  });
  if (a.dx_sum.defined()) add_column_sums(ws, a.dx.values, a.dx_sum);
  quantize_operand(ws, a.dx);
  quantize_operand(ws, a.y);
}

void expect_layer_norm_backward(Workspace& ws, int64_t rows, int64_t cols) {
  ws.expect(Workspace::kPartials,
            ws.context().on_cuda() ? cuda::layer_norm_backward_floats(rows, cols) : 2 * cpu::sum_blocks(rows) * cols);
}

}  // namespace esm::ops
