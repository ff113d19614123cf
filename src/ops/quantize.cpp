#include "ops/quantize.h"

#include <algorithm>
#include <atomic>

#include "kernels/fp8_scale.h"
#include "ops/dispatch.h"
#include "ops/parallel.h"
#include "ops/quantize_cpu.h"

namespace esm::ops {
namespace {

using precision::Format;
using precision::Grouping;
using precision::Operand;

void check_operand(const Operand& operand) {
  const bool four_bits = operand.grouping == Grouping::kNv16, mx = operand.grouping == Grouping::kMx32;
  ESM_CHECK(operand.quantized() && operand.format != Format::kF32 && operand.format != Format::kBF16 &&
                (operand.format == Format::kE2M1) == four_bits && (!mx || operand.format == Format::kE4M3),
            "no codes for {}", precision::describe(operand));
}

void check_layout(const Operand& operand, int64_t rows, int64_t k, const at::Tensor& codes,
                  const at::Tensor& inverses) {
  const precision::OperandLayout layout = precision::layout(operand, rows, k);
  ESM_CHECK(codes.dim() == 2 && codes.size(0) == rows && codes.size(1) == layout.code_bytes,
            "codes of [{}, {}] in {} are [{}, {}]", rows, k, precision::describe(operand), rows, layout.code_bytes);
  ESM_CHECK(
      inverses.numel() == layout.scales && inverses.scalar_type() == (layout.scales_are_bytes ? at::kByte : at::kFloat),
      "[{}, {}] in {} has {} scales", rows, k, precision::describe(operand), layout.scales);
}

/// The factor of the whole tensor where there is one.
float factor(const Operand& operand, const at::Tensor& scale) {
  const bool wanted = operand.grouping == Grouping::kTensor || operand.grouping == Grouping::kNv16;
  ESM_CHECK(scale.defined() == wanted, "a scale of the tensor for {}: {}", precision::describe(operand), wanted);
  return wanted ? *data<float>(scale) : 1.0f;
}

/// 2^k, |k| <= 126: bits of the exponent alone. (0: not measured yet.)
bool is_scale(float scale) {
  const uint32_t bits = kernels::bits_of(scale);
  return (bits & 0x7fffffu) == 0 && bits >= 1u << 23 && bits <= 253u << 23;
}

/// Raises `top`; the order does not matter.
void raise(std::atomic<uint32_t>& top, uint32_t bits) {
  uint32_t seen = top.load(std::memory_order_relaxed);
  while (bits > seen && !top.compare_exchange_weak(seen, bits, std::memory_order_relaxed)) {
  }
}

int64_t bands(int64_t rows) { return (rows + cpu::kBandRows - 1) / cpu::kBandRows; }

float* floats(const at::Tensor& x) { return x.scalar_type() == at::kFloat ? data<float>(x) : nullptr; }
uint8_t* byte_values(const at::Tensor& x) { return x.scalar_type() == at::kByte ? data<uint8_t>(x) : nullptr; }

void on_cpu(const Context& context, std::string_view operation, std::initializer_list<at::Tensor> tensors) {
  ESM_CHECK(!on_cuda(context, operation, tensors), "{} is for the CPU", operation);
}

}  // namespace

void quantize(const Context& context, const QuantizeArgs& args) {
  check_operand(args.to);
  ESM_CHECK(args.x.dim() == 2 && args.valid_rows >= 0 && args.valid_rows <= args.x.size(0),
            "quantize: {} dimensions, {} rows that count", args.x.dim(), args.valid_rows);
  const int64_t tokens = args.x.size(0), cols = args.x.size(1);
  const int64_t rows = args.transposed ? cols : tokens, k = args.transposed ? tokens : cols;
  check_layout(args.to, rows, k, args.codes, args.inverses);
  if (context.sketch) return;
  on_cpu(context, "quantize", {args.x, args.codes, args.inverses, args.scale, args.amax});
  const float scale = factor(args.to, args.scale);
  ESM_CHECK(args.to.grouping != Grouping::kTensor || is_scale(scale), "scale {} of a tensor is no power of two", scale);
  if (args.to.grouping == Grouping::kTensor) *data<float>(args.inverses) = kernels::inverse_power(scale);
  if (args.to.grouping == Grouping::kBlock128)
    std::fill_n(data<float>(args.inverses), args.inverses.numel(), 0.0f);  // the padding
  if (args.inverses.scalar_type() == at::kByte)
    std::fill_n(data<uint8_t>(args.inverses), args.inverses.numel(), uint8_t{0});  // likewise
  std::atomic<uint32_t> top = 0;
  with_element(args.x, [&]<class T>(T) {
    const cpu::Quantize<T> a{.rows = rows,
                             .k = k,
                             .valid_rows = args.transposed ? rows : args.valid_rows,
                             .valid_k = args.transposed ? args.valid_rows : k,
                             .row_stride = args.transposed ? 1 : cols,
                             .k_stride = args.transposed ? cols : 1,
                             .x = data<T>(args.x),
                             .format = args.to.format,
                             .grouping = args.to.grouping,
                             .scale = scale,
                             .row_bytes = args.codes.size(1),
                             .codes = data<uint8_t>(args.codes),
                             .inverses = floats(args.inverses),
                             .inverse_bytes = byte_values(args.inverses)};
    parallel_items(bands(rows), [&](int64_t band, int) { raise(top, cpu::quantize_band(a, band)); });
  });
  if (!args.amax.defined()) return;
  float* amax = data<float>(args.amax);
  *amax = kernels::float_of(std::max(kernels::amax_bits(*amax), top.load()));
}

void dequantize(const Context& context, const DequantizeArgs& args) {
  check_operand(args.from);
  ESM_CHECK(args.y.dim() == 2, "dequantize: {} dimensions", args.y.dim());
  const int64_t rows = args.y.size(0), k = args.y.size(1);
  check_layout(args.from, rows, k, args.codes, args.inverses);
  if (context.sketch) return;
  on_cpu(context, "dequantize", {args.codes, args.inverses, args.scale, args.y});
  const bool nv = args.from.grouping == Grouping::kNv16;
  ESM_CHECK(args.scale.defined() == nv, "dequantize: the scale of the tensor goes with its block scales only");
  const cpu::Dequantize a{.rows = rows,
                          .k = k,
                          .format = args.from.format,
                          .grouping = args.from.grouping,
                          .scale = nv ? *data<float>(args.scale) : 1.0f,
                          .row_bytes = args.codes.size(1),
                          .codes = data<uint8_t>(args.codes),
                          .inverses = floats(args.inverses),
                          .inverse_bytes = byte_values(args.inverses),
                          .y = data<float>(args.y)};
  parallel_items(bands(rows), [&](int64_t band, int) { cpu::dequantize_band(a, band); });
}

float largest_magnitude(const Context& context, const at::Tensor& x, int64_t valid_rows) {
  ESM_CHECK(x.dim() == 2 && valid_rows >= 0 && valid_rows <= x.size(0), "{} rows of {} count", valid_rows, x.size(0));
  on_cpu(context, "largest_magnitude", {x});
  std::atomic<uint32_t> top = 0;
  with_element(x, [&]<class T>(T) {
    const T* values = data<T>(x);
    parallel_ranges(valid_rows * x.size(1), row_grain(1),
                    [&](int64_t begin, int64_t end) { raise(top, cpu::largest_bits(end - begin, values + begin)); });
  });
  return kernels::float_of(top.load());
}

}  // namespace esm::ops
