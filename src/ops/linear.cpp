#include "ops/linear.h"

#include <algorithm>

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "precision/fp8_operand.h"

namespace esm::ops {
namespace {

/// `x` itself, or its values widened into scratch.
at::Tensor as_float(Workspace& ws, Workspace::Slot slot, const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return x;
  at::Tensor wide = ws.floats(slot, x.numel()).view(x.sizes());
  cpu::to_float(x.numel(), data<cpu::Bf16>(x), data<float>(wide));
  return wide;
}

}  // namespace

void linear(Workspace& ws, const LinearForward& a) {
  if (on_cuda(ws.context(), "linear", {a.x.by_rows(), a.weight.by_rows(), a.bias, a.residual, a.y}))
    return cuda::linear(ws, a);
  const device::Phase phase(ws.context(), "GEMM forward");
  const int64_t rows = a.y.size(0), cols = a.y.size(1);
  const at::Tensor x = as_float(ws, Workspace::kOperandA, a.x.by_rows()),
                   w = as_float(ws, Workspace::kOperandB, a.weight.by_rows());
  const bool wide = a.y.scalar_type() == at::kFloat;
  at::Tensor y = wide ? a.y : ws.floats(Workspace::kResult, rows * cols).view({rows, cols});
  if (!a.bias.defined()) {
    ESM_CHECK(!a.residual.defined(), "a residual comes with a bias");
    at::mm_out(y, x, w.t());
  } else {
    with_element(a.bias, [&](auto element) {
      using T = decltype(element);
      cpu::fill_rows(rows, cols, data<T>(a.bias), data_or_null<T>(a.residual), data<float>(y));
    });
    at::addmm_out(y, y, x, w.t());
  }
  if (!wide) cpu::to_bf16(rows * cols, data<float>(y), data<cpu::Bf16>(a.y));
}

void linear_dgrad(Workspace& ws, const LinearDgrad& a) {
  if (on_cuda(ws.context(), "linear_dgrad", {a.dy.by_rows(), a.weight.by_columns(), a.dx}))
    return cuda::linear_dgrad(ws, a);
  const device::Phase phase(ws.context(), "GEMM dgrad");
  const at::Tensor dy = as_float(ws, Workspace::kOperandA, a.dy.by_rows()),
                   w = as_float(ws, Workspace::kOperandB, a.weight.by_columns());
  const bool wide = a.dx.scalar_type() == at::kFloat;
  at::Tensor dx = wide ? a.dx : ws.floats(Workspace::kResult, a.dx.numel()).view(a.dx.sizes());
  at::mm_out(dx, dy, w);
  if (!wide) cpu::to_bf16(dx.numel(), data<float>(dx), data<cpu::Bf16>(a.dx));
}

void linear_wgrad(Workspace& ws, const LinearWgrad& a) {
  if (on_cuda(ws.context(), "linear_wgrad", {a.dy.by_columns(), a.x.by_columns(), a.dweight}))
    return cuda::linear_wgrad(ws, a);
  const device::Phase phase(ws.context(), "GEMM wgrad");
  const at::Tensor dy = as_float(ws, Workspace::kOperandA, a.dy.by_columns()),
                   x = as_float(ws, Workspace::kOperandB, a.x.by_columns());
  at::Tensor dweight = a.dweight;
  if (a.accumulate)
    at::addmm_out(dweight, dweight, dy.t(), x);
  else
    at::mm_out(dweight, dy.t(), x);
}

void expect_linear(Workspace& ws, const LinearSizes& s) {
  if (s.training) expect_column_sums(ws, s.tokens, s.out);
  if (ws.context().on_cuda() || s.type == at::kFloat) return;
  ws.expect(Workspace::kOperandA, s.tokens * (s.training ? std::max(s.in, s.out) : s.in));
  ws.expect(Workspace::kOperandB, std::max(s.out * s.in, s.training ? s.tokens * s.in : 0));
  ws.expect(Workspace::kResult, s.tokens * (s.training ? std::max(s.in, s.out) : s.out));
}

precision::LinearFormats as_supported(const Context& context, const precision::LinearFormats& formats,
                                      const LinearSizes& s) {
  if (!context.on_cuda() || context.sketch || formats.path != precision::Path::kHardware || !formats.small_groups())
    return formats;
  const std::string lacking = cuda::lacking_product(context, precision::products_of(formats, s.out, s.in, s.tokens));
  return lacking.empty() ? formats : precision::emulated_instead(formats, lacking);
}

void add_column_sums(Workspace& ws, const at::Tensor& x, const at::Tensor& sums) {
  if (on_cuda(ws.context(), "add_column_sums", {x, sums})) return cuda::add_column_sums(ws, x, sums);
  const device::Phase phase(ws.context(), "bias gradients");
  const int64_t rows = x.size(0), cols = x.size(1);
  float* partials = data<float>(ws.floats(Workspace::kPartials, cpu::sum_blocks(rows) * cols));
  with_element(x, [&](auto element) {
    using T = decltype(element);
    cpu::add_column_sums(rows, cols, data<T>(x), partials, data<float>(sums));
  });
}

void expect_column_sums(Workspace& ws, int64_t rows, int64_t cols) {
  ws.expect(Workspace::kPartials,
            ws.context().on_cuda() ? cuda::column_sums_floats(rows, cols) : cpu::sum_blocks(rows) * cols);
}

}  // namespace esm::ops
