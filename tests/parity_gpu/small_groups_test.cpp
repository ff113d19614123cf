// MXFP8 and NVFP4 on a CUDA device in codes, which only Blackwell multiplies: codes against the emulation, products
// where there are some, and what happens where there are none.
#include "base/error.h"
#include "kernels/fp8_scale.h"
#include "ops/linear.h"
#include "parity_gpu/device.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Grouping;
using precision::Precision;

constexpr int64_t kTokens = 160, kIn = 96, kOut = 224, kCounted = 131;

at::Tensor on_gpu(const at::Tensor& x) { return x.to(ops::device_of(gpu())); }

/// Without codes; each with a scale of its own.
ops::GemmOperand operand(const at::Tensor& x, const precision::Operand& format, int64_t counted) {
  ops::GemmOperand result(x);
  result.format = format;
  const auto number = [] { return at::zeros({1}, ops::options(gpu(), at::kFloat)); };
  if (format.grouping == Grouping::kNv16)
    result.scale = {.scale = number(),
                    .inverse = number(),
                    .amax = number(),
                    .measure = true,
                    .greatest = precision::greatest(format.format)};
  if (counted < x.size(0)) result.counted = on_gpu(ints({static_cast<int32_t>(counted)}));
  return result;
}

ops::GemmOperand emulated(ops::Workspace& ws, const at::Tensor& x, const precision::Operand& format, int64_t counted) {
  ops::GemmOperand result = operand(x, format, counted);
  result.emulated = true;
  result.codes = at::empty(x.sizes(), x.options());
  result.codes_t = at::empty(x.sizes(), x.options());
  ops::quantize_operand(ws, result);
  return result;
}

ops::GemmOperand in_codes(ops::Workspace& ws, const at::Tensor& x, const precision::Operand& format, int64_t counted) {
  ops::GemmOperand result = operand(x, format, counted);
  const auto room = [&](int64_t rows, int64_t k, at::Tensor& codes, at::Tensor& inverses) {
    const precision::OperandLayout layout = precision::layout(format, rows, k);
    codes = at::empty({rows, layout.code_bytes}, ops::options(gpu(), at::kByte));
    inverses = at::empty({layout.scales}, ops::options(gpu(), at::kByte));
  };
  room(x.size(0), x.size(1), result.codes, result.inverses);
  room(x.size(1), x.size(0), result.codes_t, result.inverses_t);
  ops::quantize_operand(ws, result);
  return result;
}

/// [rows, k] of codes and scales, rounded to BF16 as the emulation stores them.
std::vector<double> decoded(const ops::GemmOperand& x, const at::Tensor& codes, const at::Tensor& inverses, int64_t k) {
  const bool nv = x.format.grouping == Grouping::kNv16;
  const int64_t rows = codes.size(0), width = nv ? 16 : 32;
  const std::vector<uint8_t> code = bytes(codes), scale = bytes(inverses);
  const float tensor = nv ? x.scale.inverse.item<float>() : 1.0f;
  const at::Tensor result = at::empty({rows, k}, at::kFloat);
  float* values = result.mutable_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const uint8_t s = scale[kernels::group_scale_index(r, i / width, k / width)];
      values[r * k + i] =
          nv ? kernels::decode_e2m1(code[(r * k + i) / 2] >> (i % 2 * 4) & 0xfu) * kernels::decode_e4m3(s) * tensor
             : kernels::decode_e4m3(code[r * k + i]) * kernels::decode_ue8m0(s);
    }
  return test::values(result.to(at::kBFloat16));
}

at::Tensor uneven(uint64_t seed, int64_t rows, int64_t cols) {
  const at::Tensor x = random_tensor(seed, {rows, cols});
  for (int64_t r = 0; r < rows; ++r) x[r].mul_(std::exp2(r % 7 - 3));
  return on_gpu(x.to(at::kBFloat16));
}

bool has_products() { return gpu().compute_capability >= device::kLeastMxCapability; }

}  // namespace

TEST_CASE("small groups: codes and scales of the device stand for what its emulation gives") {
  for (const Precision precision : {Precision::kMxfp8, Precision::kNvfp4}) {
    CAPTURE(precision::find_recipe(precision).name);
    const precision::Operand format = precision::find_recipe(precision).forward.a;
    ops::Workspace ws(gpu());
    const at::Tensor x = uneven(1, kTokens, kIn);
    x.narrow(0, kCounted, kTokens - kCounted).fill_(std::nan(""));
    const ops::GemmOperand codes = in_codes(ws, x, format, kCounted), values_of = emulated(ws, x, format, kCounted);
    CHECK(decoded(codes, codes.codes, codes.inverses, kIn) == values(values_of.codes));
    CHECK(decoded(codes, codes.codes_t, codes.inverses_t, kTokens) == values(values_of.codes_t.t()));
  }
}

TEST_CASE("small groups: products in codes are those of the emulation, or an error on a device without them") {
  for (const Precision precision : {Precision::kMxfp8, Precision::kNvfp4}) {
    const precision::Recipe& recipe = precision::find_recipe(precision);
    CAPTURE(recipe.name);
    ops::Workspace ws(gpu());
    const at::Tensor x = uneven(1, kTokens, kIn), w = uneven(2, kOut, kIn), dy = uneven(3, kTokens, kOut),
                     bias = on_gpu(random_tensor(4, {kOut}, at::kBFloat16)), residual = uneven(5, kTokens, kOut);
    struct Results {
      at::Tensor y = at::zeros({kTokens, kOut}, ops::options(gpu(), at::kBFloat16));
      at::Tensor dx = at::zeros({kTokens, kIn}, ops::options(gpu(), at::kBFloat16));
      at::Tensor dw = at::full({kOut, kIn}, 1.0, ops::options(gpu(), at::kFloat));
    } want, got;
    const auto run = [&](const auto& make, const Results& to) {
      const ops::GemmOperand ox = make(ws, x, recipe.forward.a, kTokens), ow = make(ws, w, recipe.forward.b, kOut),
                             ody = make(ws, dy, recipe.dgrad.a, kTokens);
      ops::linear(ws, {.x = ox, .weight = ow, .bias = bias, .residual = residual, .y = to.y});
      ops::linear_dgrad(ws, {.dy = ody, .weight = ow, .dx = to.dx});
      ops::linear_wgrad(ws, {.dy = ody, .x = ox, .dweight = to.dw, .accumulate = true});
    };
    run(emulated, want);
    if (!has_products()) {
      CHECK_THROWS_WITH(run(in_codes, got),
                        ContainsSubstring("has no kernel on") &&
                            ContainsSubstring(precision == Precision::kMxfp8 ? "scale=mx32/mx32" : "scale=nv16/nv16"));
      continue;
    }
    run(in_codes, got);
    // The emulation rounds values of NVFP4 to BF16 before it multiplies them.
    const double bound = precision == Precision::kMxfp8 ? 0.004 : 0.008;
    CHECK(difference(values(got.y), values(want.y)).relative_l2 < bound);
    CHECK(difference(values(got.dx), values(want.dx)).relative_l2 < bound);
    CHECK(difference(values(got.dw), values(want.dw)).relative_l2 < bound);
  }
}

TEST_CASE("small groups: a model for which cuBLASLt has no kernels is emulated, says why, and trains") {
  if (has_products()) return;
  Context pretended = gpu();
  pretended.compute_capability = device::kLeastMxCapability;
  for (const Precision precision : {Precision::kMxfp8, Precision::kNvfp4}) {
    const data::Batch batch = some_batch();
    const models::ModelOptions options{
        .precision = precision, .tokens_per_batch = batch.budget(), .attention = ops::AttentionKind::kSimple};
    models::Esm2 here = random_model(gpu(), small_config(2, 4, 64), options),
                 fallen = random_model(pretended, small_config(2, 4, 64), options);
    for (const precision::PlannedLinear& linear : fallen.products()) {
      if (linear.layer == 0) continue;
      CHECK(linear.formats.path == precision::Path::kEmulated);
      CHECK_THAT(linear.formats.why,
                 ContainsSubstring("cuBLASLt has no kernel for m=") && ContainsSubstring(": emulated by this program"));
    }
    CHECK(fallen.forward_backward(batch).loss_sum == here.forward_backward(batch).loss_sum);
  }
}

}  // namespace esm::test
