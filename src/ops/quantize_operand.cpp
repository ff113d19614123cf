#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/gemm_operand.h"
#include "ops/quantize.h"
#include "precision/amax_history.h"

namespace esm::ops {
namespace {

using precision::Grouping;

int64_t counted_rows(const GemmOperand& x) {
  return x.counted.defined() ? std::min<int64_t>(*data<int32_t>(x.counted), x.values.size(0)) : x.values.size(0);
}

/// Before any codes: a scale of the tensor itself.
void measure(const Context& context, const GemmOperand& x) {
  const TensorScale& s = x.scale;
  float& amax = *data<float>(s.amax);
  const float own = largest_magnitude(context, x.values, counted_rows(x));
  amax = kernels::float_of(std::max(kernels::amax_bits(amax), kernels::amax_bits(own)));
  float& scale = *data<float>(s.scale);
  scale = x.format.grouping == Grouping::kNv16 ? kernels::nv_tensor_scale(amax)
                                               : kernels::tensor_scale(amax, s.greatest, s.margin, scale);
  *data<float>(s.inverse) = x.format.grouping == Grouping::kNv16 ? 1.0f / scale : kernels::inverse_power(scale);
}

at::Tensor bytes(Workspace& ws, Workspace::Slot slot, int64_t rows, int64_t cols) {
  return ws.floats(slot, (rows * cols + 3) / 4).view(at::kByte).narrow(0, 0, rows * cols).view({rows, cols});
}

/// to [T, n] = what products see of x after quantizing along cols or, with `transposed`, along rows.
void emulate(Workspace& ws, const GemmOperand& x, bool transposed, const at::Tensor& to) {
  const Context& context = ws.context();
  const int64_t rows = x.values.size(transposed ? 1 : 0), k = x.values.size(transposed ? 0 : 1);
  const precision::OperandLayout layout = precision::layout(x.format, rows, k);
  const at::Tensor codes = bytes(ws, Workspace::kOperandA, rows, layout.code_bytes);
  const at::Tensor inverses = layout.scales_are_bytes ? bytes(ws, Workspace::kOperandB, 1, layout.scales).view({-1})
                                                      : ws.floats(Workspace::kOperandB, layout.scales);
  const bool whole = x.format.grouping == Grouping::kTensor || x.format.grouping == Grouping::kNv16;
  const at::Tensor scale = whole ? x.scale.scale : at::Tensor();
  quantize(context, {.x = x.values,
                     .valid_rows = counted_rows(x),
                     .to = x.format,
                     .transposed = transposed,
                     .scale = scale,
                     .codes = codes,
                     .inverses = inverses,
                     .amax = x.scale.measure ? at::Tensor() : x.scale.amax});
  const at::Tensor y = ws.floats(Workspace::kResult, rows * k).view({rows, k});
  dequantize(context, {.from = x.format,
                       .codes = codes,
                       .inverses = inverses,
                       .scale = x.format.grouping == Grouping::kNv16 ? scale : at::Tensor(),
                       .y = y});
  at::Tensor(to).copy_(transposed ? y.t() : y);
}

}  // namespace

void quantize_operand(Workspace& ws, const GemmOperand& x) {
  if (!x.quantized()) return;
  if (on_cuda(ws.context(), "quantize", {x.values, x.codes, x.codes_t, x.inverses, x.inverses_t, x.scale.scale}))
    return cuda::quantize_operand(ws, x);
  ESM_CHECK(x.emulated, "{} on the CPU", precision::describe(x.format));
  if (x.scale.measure) measure(ws.context(), x);
  if (x.format.grouping == Grouping::kTensor)
    *data<float>(x.scale.inverse) = kernels::inverse_power(*data<float>(x.scale.scale));
  if (x.codes.defined()) emulate(ws, x, /*transposed=*/false, x.codes);
  if (x.codes_t.defined()) emulate(ws, x, /*transposed=*/true, x.codes_t);
}

void expect_quantize_operand(Workspace& ws, const QuantizeSizes& s) {
  if (!s.format.quantized()) return;
  if (ws.context().on_cuda()) {
    if (!s.emulated) ws.expect(Workspace::kPartials, cuda::quantize_floats(s));
    return;
  }
  for (const bool transposed : {false, true}) {
    const auto layout = precision::layout(s.format, transposed ? s.cols : s.rows, transposed ? s.rows : s.cols);
    ws.expect(Workspace::kOperandA, ((transposed ? s.cols : s.rows) * layout.code_bytes + 3) / 4);
    ws.expect(Workspace::kOperandB, layout.scales);
  }
  ws.expect(Workspace::kResult, s.rows * s.cols);
}

}  // namespace esm::ops
