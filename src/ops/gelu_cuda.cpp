#include "kernels/gelu.h"

#include <algorithm>

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/gelu_fp8.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"

namespace esm::ops::cuda {
namespace {

kernels::GeluForm form_of(Gelu form) {
  switch (form) {
    case Gelu::kErf: return kernels::GeluForm::kErf;
    case Gelu::kTanh: return kernels::GeluForm::kTanh;
  }
  fail<InternalError>("no such form of GELU");
}

void fused_backward(Workspace& ws, Gelu form, const GeluBackward& a) {
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  ESM_CHECK(!a.y.codes.defined() && !a.y.scale.measure,
            "gelu(x) again is wanted by columns, with the scale that it had");
  write_fp8(ws.context(), a.dx, [&](const kernels::Fp8Out& out) {
    kernels::GeluFp8BackwardArgs args{.form = form_of(form),
                                      .rows = rows,
                                      .cols = cols,
                                      .x = raw(a.x),
                                      .dy = raw(a.dy),
                                      .row_count = pointer<int32_t>(a.dx.counted),
                                      .dx = out};
    if (out.rows != nullptr || out.transposed != nullptr) {
      args.y = fp8_out(a.y);
      args.dx_sum = pointer<float>(a.dx_sum);
      if (a.dx_sum.defined())
        args.workspace = ws.scratch(Workspace::kPartials, kernels::gelu_fp8_backward_workspace(rows, cols));
    }
    ESM_CUDA(kernels::launch(args, ws.context().stream()));
  });
}

}  // namespace

void gelu(Workspace& ws, Gelu form, const at::Tensor& x, const GemmOperand& y) {
  const device::Phase phase(ws.context(), "GELU forward");
  const int64_t rows = x.size(0), cols = x.size(1);
  if (y.fused())
    return write_fp8(ws.context(), y, [&](const kernels::Fp8Out& out) {
      ESM_CUDA(kernels::launch(kernels::GeluFp8Args{.form = form_of(form),
                                                    .rows = rows,
                                                    .cols = cols,
                                                    .x = raw(x),
                                                    .row_count = pointer<int32_t>(y.counted),
                                                    .y = out},
                               ws.context().stream()));
    });
  ESM_CUDA(kernels::launch(
      kernels::GeluArgs{
          .dtype = dtype_of(x), .form = form_of(form), .rows = rows, .cols = cols, .x = raw(x), .y = raw(y.values)},
      ws.context().stream()));
  ops::quantize_operand(ws, y);
}

void gelu_backward(Workspace& ws, Gelu form, const GeluBackward& a) {
  const device::Phase phase(ws.context(), "GELU backward");
  if (a.dx.fused() && a.y.fused()) return fused_backward(ws, form, a);
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  void* workspace =
      a.dx_sum.defined() ? ws.scratch(Workspace::kPartials, kernels::gelu_backward_workspace(rows, cols)) : nullptr;
  ESM_CUDA(kernels::launch(kernels::GeluBackwardArgs{.dtype = dtype_of(a.x),
                                                     .form = form_of(form),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .x = raw(a.x),
                                                     .dy = raw(a.dy),
                                                     .dx = raw(a.dx.values),
                                                     .y = raw(a.y.values),
                                                     .dx_sum = pointer<float>(a.dx_sum),
                                                     .workspace = workspace},
                           ws.context().stream()));
  ops::quantize_operand(ws, a.dx);
  ops::quantize_operand(ws, a.y);
}

int64_t gelu_backward_floats(int64_t rows, int64_t cols) {
  return std::max(floats_of(kernels::gelu_backward_workspace(rows, cols)),
                  floats_of(kernels::gelu_fp8_backward_workspace(rows, cols)));
}

}  // namespace esm::ops::cuda
