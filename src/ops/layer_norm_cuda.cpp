#include "kernels/layer_norm.h"

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {

void layer_norm(const Context& context, const LayerNormForward& a) {
  const device::Phase phase(context, "layer norm forward");
  ESM_CUDA(kernels::launch(kernels::LayerNormArgs{.dtype = dtype_of(a.x),
                                                  .rows = a.x.size(0),
                                                  .cols = a.x.size(1),
                                                  .x = raw(a.x),
                                                  .gamma = raw(a.weight),
                                                  .beta = raw(a.bias),
                                                  .eps = static_cast<float>(a.eps),
                                                  .y = raw(a.y),
                                                  .mean = pointer<float>(a.mean),
                                                  .rstd = pointer<float>(a.rstd)},
                           context.stream()));
}

void layer_norm_backward(Workspace& ws, const LayerNormBackward& a) {
  const device::Phase phase(ws.context(), "layer norm backward");
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const size_t bytes = kernels::layer_norm_backward_workspace(rows, cols, a.dx_sum.defined());
  ESM_CUDA(kernels::launch(kernels::LayerNormBackwardArgs{.dtype = dtype_of(a.x),
                                                          .rows = rows,
                                                          .cols = cols,
                                                          .x = raw(a.x),
                                                          .gamma = raw(a.weight),
                                                          .beta = raw(a.bias),
                                                          .mean = pointer<float>(a.mean),
                                                          .rstd = pointer<float>(a.rstd),
                                                          .dy = raw(a.dy),
                                                          .residual_gradient = a.accumulate ? raw(a.dx) : nullptr,
                                                          .dx = raw(a.dx),
                                                          .y = raw(a.y),
                                                          .dgamma = pointer<float>(a.dweight),
                                                          .dbeta = pointer<float>(a.dbias),
                                                          .dx_sum = pointer<float>(a.dx_sum),
                                                          .workspace = ws.scratch(Workspace::kPartials, bytes)},
                           ws.context().stream()));
}

int64_t layer_norm_backward_floats(int64_t rows, int64_t cols) {
  return floats_of(kernels::layer_norm_backward_workspace(rows, cols, /*dx_sum=*/true));
}

}  // namespace esm::ops::cuda
