// Products as tensor cores form them of MXFP8 and NVFP4, codes and scales as they lie in memory, against the emulation.
#include <algorithm>
#include <cmath>

#include "checks/gemm_reference.h"
#include "kernels/fp8_scale.h"
#include "ops/code_counts.h"
#include "ops/linear.h"
#include "ops/quantize.h"
#include "precision/fp8_operand.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Format;
using precision::Grouping;

const Context kContext{.threads = 1};

/// What a kernel finds at the pointers of an operand.
struct Operand {
  std::vector<double> values;  // of codes
  std::vector<float> scales;
  double inverse = 1;  // scale of the tensor
};

Operand operand(const at::Tensor& x, const precision::Operand& format, bool transposed) {
  const int64_t rows = x.size(transposed ? 1 : 0), k = x.size(transposed ? 0 : 1);
  const precision::OperandLayout layout = precision::layout(format, rows, k);
  const at::Tensor codes = at::empty({rows, layout.code_bytes}, at::kByte),
                   inverses = at::empty({layout.scales}, at::kByte);
  Operand result;
  at::Tensor scale;
  if (format.grouping == Grouping::kNv16) {
    scale = at::full({1}, kernels::nv_tensor_scale(ops::largest_magnitude(kContext, x, x.size(0))), at::kFloat);
    result.inverse = 1.0f / scale.item<float>();
  }
  ops::quantize(kContext, {.x = x,
                           .valid_rows = x.size(0),
                           .to = format,
                           .transposed = transposed,
                           .scale = scale,
                           .codes = codes,
                           .inverses = inverses,
                           .amax = {}});
  for (const uint8_t byte : bytes(codes)) {
    if (format.format == Format::kE4M3) {
      result.values.push_back(kernels::decode_e4m3(byte));
      continue;
    }
    for (const uint32_t code : {byte & 0xfu, static_cast<uint32_t>(byte >> 4)})
      result.values.push_back(kernels::decode_e2m1(code));
  }
  for (const uint8_t byte : bytes(inverses))
    result.scales.push_back(format.grouping == Grouping::kMx32 ? kernels::decode_ue8m0(byte)
                                                               : kernels::decode_e4m3(byte));
  return result;
}

/// D of the product as cuBLASLt is asked for it.
std::vector<double> product(const device::GemmDesc& desc, const Operand& a, const Operand& b,
                            const std::vector<double>& bias = {}) {
  const auto result = checks::gemm_reference(desc,
                                             {.a = a.values,
                                              .b = b.values,
                                              .scale_a = a.scales,
                                              .scale_b = b.scales,
                                              .alpha = a.inverse * b.inverse,
                                              .c = {},
                                              .bias = bias},
                                             desc.k);
  std::vector<double> d;
  for (const checks::GemmExpected& e : result.d) d.push_back(e.value);
  return d;
}

/// Emulated in both orders.
ops::GemmOperand emulated(ops::Workspace& ws, const at::Tensor& x, const precision::Operand& format) {
  ops::GemmOperand result(x);
  result.format = format;
  result.emulated = true;
  result.codes = at::empty(x.sizes(), x.options());
  result.codes_t = at::empty(x.sizes(), x.options());
  if (format.grouping == Grouping::kNv16)
    result.scale = {.scale = at::zeros({1}, at::kFloat),
                    .inverse = at::zeros({1}, at::kFloat),
                    .amax = at::zeros({1}, at::kFloat),
                    .measure = true,
                    .greatest = precision::greatest(format.format)};
  ops::quantize_operand(ws, result);
  return result;
}

at::Tensor uneven(uint64_t seed, int64_t rows, int64_t cols) {
  const at::Tensor x = random_tensor(seed, {rows, cols});
  for (int64_t r = 0; r < rows; ++r) x[r].mul_(std::exp2(r % 7 - 3));
  return x;
}

}  // namespace

TEST_CASE("products of codes, scales and factors as cuBLASLt reads them are those of the emulation") {
  const int64_t tokens = 160, in = 96, out = 224;
  const at::Tensor x = uneven(1, tokens, in), w = uneven(2, out, in), dy = uneven(3, tokens, out),
                   bias = random_tensor(4, {out});
  for (const auto precision : {precision::Precision::kMxfp8, precision::Precision::kNvfp4}) {
    const precision::Recipe& recipe = precision::find_recipe(precision);
    CAPTURE(recipe.name);
    const precision::LinearFormats formats = precision::resolve(recipe, out, in, tokens, 100);
    REQUIRE(formats.path == precision::Path::kHardware);
    const std::vector<device::GemmDesc> asked = precision::products_of(formats, out, in, tokens);
    ops::Workspace ws(kContext);
    const ops::GemmOperand ex = emulated(ws, x, formats.x), ew = emulated(ws, w, formats.weight),
                           edy = emulated(ws, dy, formats.dy);
    const auto close = [](const std::vector<double>& got, const at::Tensor& want) {
      CHECK(difference(got, values(want)).relative_l2 < 1e-6);
    };
    const at::Tensor y = at::empty({tokens, out}), dx = at::empty({tokens, in}), dw = at::empty({out, in});
    ops::linear(ws, {.x = ex, .weight = ew, .bias = bias, .residual = {}, .y = y});
    close(product(asked[0], operand(w, formats.weight, false), operand(x, formats.x, false), values(bias)), y);
    ops::linear_dgrad(ws, {.dy = edy, .weight = ew, .dx = dx});
    close(product(asked[2], operand(w, formats.weight, true), operand(dy, formats.dy, false)), dx);
    ops::linear_wgrad(ws, {.dy = edy, .x = ex, .dweight = dw, .accumulate = false});
    close(product(asked[3], operand(x, formats.x, true), operand(dy, formats.dy, true)), dw);
    // A scale in the wrong place is seen.
    Operand shifted = operand(w, formats.weight, false);
    std::rotate(shifted.scales.begin(), shifted.scales.begin() + 16, shifted.scales.end());
    CHECK(difference(product(asked[0], shifted, operand(x, formats.x, false), values(bias)), values(y)).relative_l2 >
          0.01);
  }
}

TEST_CASE("pairs of FP4 codes are counted: zeros, ends of the range, rows of zeros left out") {
  ops::CodeCounts counts(kContext);
  counts.add("a");
  counts.allocate();
  counts.watch(true);
  ops::GemmOperand a(at::zeros({4, 8}, at::kFloat));
  a.format = {Format::kE2M1, Grouping::kNv16};
  // +6 and 0, -6 and -0, two of 0, +0.5 and +6; a row of zeros; one beyond those that count; a row with 7 zeros.
  a.codes = byte_values({0x07, 0x8f, 0x00, 0x71, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0}).view({4, 4});
  a.counted = ints({3});
  counts.count(a, 0);
  CHECK(values(counts.counts()[0]) == std::vector<double>{4 + 7, 3, 16});
}

}  // namespace esm::test
