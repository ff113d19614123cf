#include "kernels/gelu.h"

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {
namespace {

kernels::GeluForm form_of(Gelu form) {
  switch (form) {
    case Gelu::kErf: return kernels::GeluForm::kErf;
    case Gelu::kTanh: return kernels::GeluForm::kTanh;
  }
  fail<InternalError>("no such form of GELU");
}

}  // namespace

void gelu(const Context& context, Gelu form, const at::Tensor& x, const at::Tensor& y) {
  const device::Phase phase(context, "GELU forward");
  ESM_CUDA(kernels::launch(
      kernels::GeluArgs{
          .dtype = dtype_of(x), .form = form_of(form), .rows = x.size(0), .cols = x.size(1), .x = raw(x), .y = raw(y)},
      context.stream()));
}

void gelu_backward(Workspace& ws, Gelu form, const GeluBackward& a) {
  const device::Phase phase(ws.context(), "GELU backward");
  const int64_t rows = a.x.size(0), cols = a.x.size(1);
  void* workspace =
      a.dx_sum.defined() ? ws.scratch(Workspace::kPartials, kernels::gelu_backward_workspace(rows, cols)) : nullptr;
  ESM_CUDA(kernels::launch(kernels::GeluBackwardArgs{.dtype = dtype_of(a.x),
                                                     .form = form_of(form),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .x = raw(a.x),
                                                     .dy = raw(a.dy),
                                                     .dx = raw(a.dx),
                                                     .y = raw(a.y),
                                                     .dx_sum = pointer<float>(a.dx_sum),
                                                     .workspace = workspace},
                           ws.context().stream()));
}

int64_t gelu_backward_floats(int64_t rows, int64_t cols) {
  return floats_of(kernels::gelu_backward_workspace(rows, cols));
}

}  // namespace esm::ops::cuda
