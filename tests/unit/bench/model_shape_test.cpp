#include "bench/model_shape.h"

#include <algorithm>

#include "base/error.h"
#include "support/catch.h"

namespace esm::bench {
namespace {

ModelShape small() {
  return {.layers = 2, .hidden = 64, .heads = 4, .ffn = 256, .tokens = 1024, .max_tokens = 128, .head_rows = 256};
}

const NamedGemm& find(const std::vector<NamedGemm>& gemms, const std::string& name) {
  const auto it = std::find_if(gemms.begin(), gemms.end(), [&](const NamedGemm& g) { return g.name == name; });
  REQUIRE(it != gemms.end());
  return *it;
}

}  // namespace

TEST_CASE("the products of a model: three roles of four linears a layer and of two in the head") {
  const std::vector<NamedGemm> gemms = model_gemms(small());
  CHECK(std::count_if(gemms.begin(), gemms.end(), [](const NamedGemm& g) { return g.in_layer; }) == 12);
  CHECK(gemms.size() == 18);
  for (const NamedGemm& g : gemms) device::check(g.desc);

  const NamedGemm& fc2 = find(gemms, "fc2 forward");
  CHECK((fc2.desc.m == 64 && fc2.desc.n == 1024 && fc2.desc.k == 256));
  CHECK((fc2.desc.accumulate && fc2.separate_c && fc2.desc.epilogue == device::GemmEpilogue::kBias));
  const NamedGemm& qkv = find(gemms, "qkv wgrad");
  CHECK((qkv.desc.m == 64 && qkv.desc.n == 192 && qkv.desc.k == 1024));
  CHECK((qkv.desc.accumulate && !qkv.separate_c && qkv.desc.d == DType::kF32));
  const NamedGemm& decoder = find(gemms, "decoder forward");
  CHECK((decoder.desc.m == 64 && decoder.desc.n == 256 && decoder.desc.k == 64));
  CHECK((decoder.desc.d == DType::kF32 && decoder.desc.epilogue == device::GemmEpilogue::kNone && !decoder.in_layer));

  // Forward and both gradients cost the same: 6 FLOPs a parameter and token.
  double flops = 0;
  for (const NamedGemm& g : gemms)
    if (g.in_layer) flops += g.desc.flops();
  CHECK(flops == 6.0 * 1024 * (4 * 64 * 64 + 2 * 64 * 256));
}

TEST_CASE(
    "the products of a layer in FP8: k-contiguous, the shapes of the plain ones, what cannot be is kept to be named") {
  const std::vector<NamedGemm> plain = model_gemms(small());
  CHECK(fp8_modes().size() == 5);
  for (const Fp8Mode& mode : fp8_modes()) {
    const std::vector<NamedGemm> gemms = model_fp8_gemms(small(), mode);
    CHECK(gemms.size() == 12);
    for (const NamedGemm& g : gemms) {
      INFO(mode.name << ": " << g.name);
      const NamedGemm& same = find(plain, g.name);
      CHECK((g.desc.m == same.desc.m && g.desc.n == same.desc.n && g.desc.k == same.desc.k && g.desc.d == same.desc.d));
      CHECK((g.desc.epilogue == same.desc.epilogue && g.desc.accumulate == same.desc.accumulate));
      CHECK(g.separate_c == same.separate_c);
      CHECK(g.desc.fast_accumulation == mode.fast_accumulation);
      // hidden 64 fits no block of 128 where it is summed over.
      const bool blocks = mode.rest == device::GemmScale::kVector128;
      CHECK(device::fp8_obstacle(g.desc).empty() == (!blocks || g.desc.k % 128 == 0));
    }
  }
}

TEST_CASE("the parameters of a layer are those of the model") {
  // 650M: 33 layers of 19,677,440 parameters.
  const ModelShape shape{.layers = 33, .hidden = 1280, .heads = 20, .ffn = 5120};
  CHECK(shape.layer_parameters() == 19'677'440);
  CHECK(shape.head_dim() == 64);
}

TEST_CASE("sizes that the CUDA kernels do not take are a ConfigError that names them") {
  CHECK_NOTHROW(check(small()));
  ModelShape odd = small();
  odd.heads = 16;  // heads of 4
  CHECK_THROWS_AS(check(odd), ConfigError);
  CHECK_THROWS_WITH(check(odd), ContainsSubstring("hidden 64, heads 16"));
  odd = small();
  odd.ffn = 260;
  CHECK_THROWS_AS(check(odd), ConfigError);
}

}  // namespace esm::bench
