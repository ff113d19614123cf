// What a linear layer hands to the operations that make its matrices, by the formats of a device.
#include "nn/layers.h"
#include "support/catch.h"
#include "support/torch.h"

namespace esm::test {
namespace {

constexpr int64_t kTokens = 160, kIn = 96, kOut = 224;

struct Shapes {
  std::vector<int64_t> codes, codes_t;
  int64_t scales, scales_t;
  bool operator==(const Shapes&) const = default;
};

Shapes shapes(const ops::GemmOperand& x) {
  CHECK(x.in_codes());
  for (const at::Tensor& bytes : {x.codes, x.codes_t, x.inverses, x.inverses_t})
    CHECK((bytes.scalar_type() == at::kByte && bytes.is_contiguous()));
  return {x.codes.sizes().vec(), x.codes_t.sizes().vec(), x.inverses.numel(), x.inverses_t.numel()};
}

}  // namespace

TEST_CASE(
    "operands of MXFP8 and NVFP4 on a device that multiplies them: bytes of codes, tiles of scales, both orders") {
  const Context context{.threads = 1};
  std::vector<nn::ParamSpec> specs;
  nn::Linear::declare(specs, "l", kOut, kIn, 0.02);
  const nn::UnitStorage storage(context, "u", specs, precision::Precision::kBf16, /*training=*/true);
  for (const auto precision : {precision::Precision::kMxfp8, precision::Precision::kNvfp4}) {
    CAPTURE(precision::find_recipe(precision).name);
    const bool nv = precision == precision::Precision::kNvfp4;
    ops::Scales scales(context, 1);
    ops::CodeCounts counts(context);
    // The CPU computes nothing of this: only shapes are looked at.
    const nn::Products products{
        .precision = precision, .scales = &scales, .counts = &counts, .tokens = kTokens, .capability = 100};
    const nn::Linear linear(storage, "l", &products);
    scales.allocate();
    CHECK(linear.formats().path == precision::Path::kHardware);
    CHECK_FALSE(linear.fused());
    const nn::CodeBuffers room = nn::Linear::make_room(context, linear.input_room(kTokens), true);
    const nn::CodeBuffers gradient_room = nn::Linear::make_room(context, linear.gradient_room(kTokens), true);
    const at::Tensor x = at::zeros({kTokens, kIn}, at::kBFloat16), dy = at::zeros({kTokens, kOut}, at::kBFloat16);
    const ops::Pack pack;
    // 160 tokens: 256 rows of scales, or 5 groups of 32 in 8 places (10 of 16 in 12).
    const ops::GemmOperand gradient = linear.gradient(pack, gradient_room, dy);
    if (nv)
      CHECK((shapes(gradient) == Shapes{{160, 112}, {224, 80}, 256 * 16, 256 * 12}));
    else
      CHECK((shapes(gradient) == Shapes{{160, 224}, {224, 160}, 256 * 8, 256 * 8}));
    ops::GemmOperand input = linear.input(pack, room, x, nn::Codes::kBoth);
    if (nv)
      CHECK((shapes(input) == Shapes{{160, 48}, {96, 80}, 256 * 8, 128 * 12}));
    else
      CHECK((shapes(input) == Shapes{{160, 96}, {96, 160}, 256 * 4, 128 * 8}));
    CHECK(input.scale.inverse.defined() == nv);
    CHECK(input.scale.measure == nv);
    // By columns: with the amax that it had by rows.
    input = linear.input(pack, room, x, nn::Codes::kColumns);
    CHECK_FALSE(input.codes.defined());
    CHECK((input.codes_t.defined() && !input.scale.measure));
    CHECK(input.scale.amax.defined() == nv);
    int64_t bytes = 0;
    linear.each_buffer([&](const at::Tensor& buffer) { bytes += buffer.nbytes(); });
    // Weight [224, 96] in both orders, each with room for the larger scales: 256 x 4 or 128 x 8 (NVFP4: 256 x 8 or
    // 128 x 16).
    CHECK(bytes == 2 * (nv ? 224 * 48 + 256 * 8 : 224 * 96 + 256 * 4));
  }
}

}  // namespace esm::test
