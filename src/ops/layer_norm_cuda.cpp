#include "kernels/layer_norm.h"

#include <algorithm>

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/layer_norm_fp8.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"

namespace esm::ops::cuda {
namespace {

/// The kernel writes dx for the residual stream, its codes and those of y in one pass. Scales of dx that are not known
/// yet are measured meanwhile; the codes come after.
void fused_backward(Workspace& ws, const LayerNormBackward& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  ESM_CHECK(!a.y.codes.defined() && !a.y.scale.measure, "the output again is wanted by columns, with its old scale");
  const bool codes_here = a.dx.fused() && !a.dx.scale.measure;
  const kernels::Fp8Out dx8 = codes_here ? fp8_out(a.dx) : a.dx.fused() ? fp8_measured(a.dx) : kernels::Fp8Out{};
  ESM_CUDA(kernels::launch(
      kernels::LayerNormFp8BackwardArgs{
          .rows = rows,
          .cols = cols,
          .x = raw(a.x),
          .gamma = raw(a.weight),
          .beta = raw(a.bias),
          .mean = pointer<float>(a.mean),
          .rstd = pointer<float>(a.rstd),
          .dy = raw(a.dy),
          .residual_gradient = a.accumulate ? raw(a.dx.values) : nullptr,
          .row_count = pointer<int32_t>(a.y.counted),
          .dx = raw(a.dx.values),
          .dx8 = dx8,
          .y8 = fp8_out(a.y),
          .dgamma = pointer<float>(a.dweight),
          .dbeta = pointer<float>(a.dbias),
          .dx_sum = pointer<float>(a.dx_sum),
          .workspace = ws.scratch(Workspace::kPartials, kernels::layer_norm_fp8_backward_workspace(rows, cols))},
      ws.context().stream()));
  if (codes_here) return;
  GemmOperand dx = a.dx;
  if (dx.fused()) {
    measured_scale(ws.context(), dx.scale);
    dx.scale.measure = false;
    dx.scale.amax = at::Tensor();
  }
  ops::quantize_operand(ws, dx);
}

}  // namespace

void layer_norm(Workspace& ws, const LayerNormForward& a) {
  const device::Phase phase(ws.context(), "layer norm forward");
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  if (a.y.fused())
    return write_fp8(ws.context(), a.y, [&](const kernels::Fp8Out& out) {
      ESM_CUDA(kernels::launch(kernels::LayerNormFp8Args{.rows = rows,
                                                         .cols = cols,
                                                         .x = raw(a.x),
                                                         .gamma = raw(a.weight),
                                                         .beta = raw(a.bias),
                                                         .eps = static_cast<float>(a.eps),
                                                         .row_count = pointer<int32_t>(a.y.counted),
                                                         .y = out,
                                                         .mean = pointer<float>(a.mean),
                                                         .rstd = pointer<float>(a.rstd)},
                               ws.context().stream()));
    });
  ESM_CUDA(kernels::launch(kernels::LayerNormArgs{.dtype = dtype_of(a.x),
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .x = raw(a.x),
                                                  .gamma = raw(a.weight),
                                                  .beta = raw(a.bias),
                                                  .eps = static_cast<float>(a.eps),
                                                  .y = raw(a.y.values),
                                                  .mean = pointer<float>(a.mean),
                                                  .rstd = pointer<float>(a.rstd)},
                           ws.context().stream()));
  ops::quantize_operand(ws, a.y);
}

void layer_norm_backward(Workspace& ws, const LayerNormBackward& a) {
  const device::Phase phase(ws.context(), "layer norm backward");
  if (a.y.fused() && a.x.size(1) <= kernels::kLayerNormFp8MaxCols) return fused_backward(ws, a);
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  const size_t bytes = kernels::layer_norm_backward_workspace(rows, cols, a.dx_sum.defined());
  ESM_CUDA(
      kernels::launch(kernels::LayerNormBackwardArgs{.dtype = dtype_of(a.x),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .x = raw(a.x),
                                                     .gamma = raw(a.weight),
                                                     .beta = raw(a.bias),
                                                     .mean = pointer<float>(a.mean),
                                                     .rstd = pointer<float>(a.rstd),
                                                     .dy = raw(a.dy),
                                                     .residual_gradient = a.accumulate ? raw(a.dx.values) : nullptr,
                                                     .dx = raw(a.dx.values),
                                                     .y = raw(a.y.values),
                                                     .dgamma = pointer<float>(a.dweight),
                                                     .dbeta = pointer<float>(a.dbias),
                                                     .dx_sum = pointer<float>(a.dx_sum),
                                                     .workspace = ws.scratch(Workspace::kPartials, bytes)},
                      ws.context().stream()));
  ops::quantize_operand(ws, a.dx);
  ops::quantize_operand(ws, a.y);
}

int64_t layer_norm_backward_floats(int64_t rows, int64_t cols) {
  return std::max(floats_of(kernels::layer_norm_backward_workspace(rows, cols, /*dx_sum=*/true)),
                  floats_of(kernels::layer_norm_fp8_backward_workspace(rows, cols)));
}

}  // namespace esm::ops::cuda
