#include "device/cuda_check.h"
#include "device/cuda_queue.h"
#include "device/phase_clock.h"
#include "kernels/reduce.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {
namespace {

device::GemmContext& gemm(Workspace& ws) { return ws.context().cuda->gemm; }

}  // namespace

void linear(Workspace& ws, const LinearForward& a) {
  const device::Phase phase(ws.context(), "GEMM forward");
  ESM_CHECK(!a.residual.defined() || a.bias.defined(), "a residual comes with a bias");
  const device::LinearForwardGemm product{.tokens = a.x.size(0),
                                          .out = a.weight.size(0),
                                          .in = a.weight.size(1),
                                          .operands = dtype_of(a.x),
                                          .y = dtype_of(a.y),
                                          .bias = a.bias.defined(),
                                          .residual = a.residual.defined()};
  gemm(ws).run(
      product,
      {.x = raw(a.x), .weight = raw(a.weight), .bias = raw(a.bias), .residual = raw(a.residual), .y = raw(a.y)},
      ws.context().stream());
}

void linear_dgrad(Workspace& ws, const LinearDgrad& a) {
  const device::Phase phase(ws.context(), "GEMM dgrad");
  const device::LinearDgradGemm product{.tokens = a.dy.size(0),
                                        .out = a.weight.size(0),
                                        .in = a.weight.size(1),
                                        .operands = dtype_of(a.dy),
                                        .dx = dtype_of(a.dx)};
  gemm(ws).run(product, {.dy = raw(a.dy), .weight = raw(a.weight), .dx = raw(a.dx)}, ws.context().stream());
}

void linear_wgrad(Workspace& ws, const LinearWgrad& a) {
  const device::LinearWgradGemm product{.tokens = a.dy.size(0),
                                        .out = a.dweight.size(0),
                                        .in = a.dweight.size(1),
                                        .operands = dtype_of(a.dy),
                                        .dweight = dtype_of(a.dweight),
                                        .accumulate = a.accumulate};
  const device::Phase phase(ws.context(), "GEMM wgrad");
  gemm(ws).run(product, {.dy = raw(a.dy), .x = raw(a.x), .dweight = raw(a.dweight), .dbias = nullptr},
               ws.context().stream());
}

void add_column_sums(Workspace& ws, const at::Tensor& x, const at::Tensor& sums) {
  const device::Phase phase(ws.context(), "bias gradients");
  const int64_t rows = x.size(0), cols = x.size(1);
  ESM_CUDA(kernels::launch(
      kernels::ColumnSumArgs{.dtype = dtype_of(x),
                             .rows = rows,
                             .cols = cols,
                             .x = raw(x),
                             .sum = pointer<float>(sums),
                             .workspace = ws.scratch(Workspace::kPartials, kernels::column_sum_workspace(rows, cols))},
      ws.context().stream()));
}

int64_t column_sums_floats(int64_t rows, int64_t cols) { return floats_of(kernels::column_sum_workspace(rows, cols)); }

}  // namespace esm::ops::cuda
