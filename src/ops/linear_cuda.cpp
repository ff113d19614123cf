#include "device/cuda_check.h"
#include "device/cuda_queue.h"
#include "device/phase_clock.h"
#include "kernels/fp8_scales.h"
#include "kernels/reduce.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"
#include "precision/fp8_operand.h"

namespace esm::ops::cuda {
namespace {

device::GemmContext& gemm(Workspace& ws) { return ws.context().cuda->gemm; }

device::GemmContext::Fp8Data rows_of(const GemmOperand& x) { return {raw(x.codes), raw(x.inverses)}; }
device::GemmContext::Fp8Data columns_of(const GemmOperand& x) { return {raw(x.codes_t), raw(x.inverses_t)}; }

/// Elements of a row of codes.
int64_t row_elements(const GemmOperand& x, const at::Tensor& codes) {
  return codes.size(1) * (x.format.format == precision::Format::kE2M1 ? 2 : 1);
}

/// alpha and beta of a product whose operands have scales of whole tensors above those of groups; else null.
const float* factors(Workspace& ws, const GemmOperand& a, const GemmOperand& b, bool accumulate) {
  if (a.format.grouping != precision::Grouping::kNv16) return nullptr;
  auto* result = static_cast<float*>(ws.scratch(Workspace::kPartials, kProductFactors * sizeof(float)));
  ESM_CUDA(kernels::launch(kernels::ProductFactorsArgs{.a = pointer<float>(a.scale.inverse),
                                                       .b = pointer<float>(b.scale.inverse),
                                                       .beta = accumulate ? 1.0f : 0.0f,
                                                       .factors = result},
                           ws.context().stream()));
  return result;
}

/// Both in codes, or neither.
bool in_codes(const GemmOperand& a, const GemmOperand& b) {
  ESM_CHECK(a.in_codes() == b.in_codes(), "a product of {} and {}", precision::describe(a.format),
            precision::describe(b.format));
  return a.in_codes();
}

}  // namespace

void linear(Workspace& ws, const LinearForward& a) {
  const device::Phase phase(ws.context(), "GEMM forward");
  ESM_CHECK(!a.residual.defined() || a.bias.defined(), "a residual comes with a bias");
  if (in_codes(a.x, a.weight)) {
    const device::Fp8ForwardGemm product{.tokens = a.x.codes.size(0),
                                         .out = a.weight.codes.size(0),
                                         .in = row_elements(a.weight, a.weight.codes),
                                         .weight = precision::fp8_operand(a.weight.format),
                                         .x = precision::fp8_operand(a.x.format),
                                         .fast_accumulation = a.fast_accumulation,
                                         .y = dtype_of(a.y),
                                         .bias = a.bias.defined(),
                                         .residual = a.residual.defined()};
    return gemm(ws).run(product,
                        {.x = rows_of(a.x),
                         .weight = rows_of(a.weight),
                         .bias = raw(a.bias),
                         .residual = raw(a.residual),
                         .y = raw(a.y),
                         .factors = factors(ws, a.x, a.weight, a.residual.defined())},
                        ws.context().stream());
  }
  const at::Tensor &x = a.x.by_rows(), &weight = a.weight.by_rows();
  const device::LinearForwardGemm product{.tokens = x.size(0),
                                          .out = weight.size(0),
                                          .in = weight.size(1),
                                          .operands = dtype_of(x),
                                          .y = dtype_of(a.y),
                                          .bias = a.bias.defined(),
                                          .residual = a.residual.defined()};
  gemm(ws).run(product,
               {.x = raw(x), .weight = raw(weight), .bias = raw(a.bias), .residual = raw(a.residual), .y = raw(a.y)},
               ws.context().stream());
}

void linear_dgrad(Workspace& ws, const LinearDgrad& a) {
  const device::Phase phase(ws.context(), "GEMM dgrad");
  if (in_codes(a.dy, a.weight)) {
    const device::Fp8DgradGemm product{.tokens = a.dy.codes.size(0),
                                       .out = row_elements(a.weight, a.weight.codes_t),
                                       .in = a.weight.codes_t.size(0),
                                       .weight_t = precision::fp8_operand(a.weight.format),
                                       .dy = precision::fp8_operand(a.dy.format),
                                       .fast_accumulation = a.fast_accumulation,
                                       .dx = dtype_of(a.dx)};
    return gemm(ws).run(product,
                        {.dy = rows_of(a.dy),
                         .weight_t = columns_of(a.weight),
                         .dx = raw(a.dx),
                         .factors = factors(ws, a.dy, a.weight, false)},
                        ws.context().stream());
  }
  const at::Tensor &dy = a.dy.by_rows(), &weight = a.weight.by_columns();
  const device::LinearDgradGemm product{.tokens = dy.size(0),
                                        .out = weight.size(0),
                                        .in = weight.size(1),
                                        .operands = dtype_of(dy),
                                        .dx = dtype_of(a.dx)};
  gemm(ws).run(product, {.dy = raw(dy), .weight = raw(weight), .dx = raw(a.dx)}, ws.context().stream());
}

void linear_wgrad(Workspace& ws, const LinearWgrad& a) {
  const device::Phase phase(ws.context(), "GEMM wgrad");
  if (in_codes(a.dy, a.x)) {
    const device::Fp8WgradGemm product{.tokens = row_elements(a.dy, a.dy.codes_t),
                                       .out = a.dweight.size(0),
                                       .in = a.dweight.size(1),
                                       .x_t = precision::fp8_operand(a.x.format),
                                       .dy_t = precision::fp8_operand(a.dy.format),
                                       .fast_accumulation = a.fast_accumulation,
                                       .dweight = dtype_of(a.dweight),
                                       .accumulate = a.accumulate};
    return gemm(ws).run(product,
                        {.dy_t = columns_of(a.dy),
                         .x_t = columns_of(a.x),
                         .dweight = raw(a.dweight),
                         .factors = factors(ws, a.dy, a.x, a.accumulate)},
                        ws.context().stream());
  }
  const at::Tensor &dy = a.dy.by_columns(), &x = a.x.by_columns();
  const device::LinearWgradGemm product{.tokens = dy.size(0),
                                        .out = a.dweight.size(0),
                                        .in = a.dweight.size(1),
                                        .operands = dtype_of(dy),
                                        .dweight = dtype_of(a.dweight),
                                        .accumulate = a.accumulate};
  gemm(ws).run(product, {.dy = raw(dy), .x = raw(x), .dweight = raw(a.dweight)}, ws.context().stream());
}

std::string lacking_product(const Context& context, const std::vector<device::GemmDesc>& products) {
  for (const device::GemmDesc& product : products)
    if (!context.cuda->gemm.supported(product)) return "cuBLASLt has no kernel for " + text(product);
  return "";
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
