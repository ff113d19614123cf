#include "models/esm2.h"

#include <cmath>

#include "base/error.h"
#include "models/registry.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/torch.h"

namespace esm::test {

TEST_CASE("parameter counts are those of the published models") {
  const auto [layers, heads, head_dim, count] = GENERATE(table<int64_t, int64_t, int64_t, int64_t>({
      {6, 20, 16, 7'512'353},
      {12, 20, 24, 33'501'153},
  }));
  models::Esm2 model(Context{}, small_config(layers, heads, head_dim), {.tokens_per_batch = 128, .training = false});
  CHECK(model.parameter_count() == count);
  CHECK(static_cast<int64_t>(model.units().size()) == layers + 2);
}

TEST_CASE("parameter names are the ones that checkpoints use") {
  models::Esm2 model(Context{}, small_config(2, 2, 8), {.tokens_per_batch = 128, .training = false});
  std::vector<std::string> names;
  for (nn::UnitStorage* unit : model.units())
    for (const nn::ParamEntry& entry : unit->entries()) names.push_back(entry.spec.name);
  std::vector<std::string> expected{"embedding.weight"};
  for (const std::string layer : {"layers.0.", "layers.1."})
    for (const std::string part :
         {"attention_norm", "attention.qkv", "attention.out", "ffn_norm", "ffn.fc1", "ffn.fc2"})
      for (const std::string kind : {".weight", ".bias"}) expected.push_back(layer + part + kind);
  for (const std::string part : {"final_norm", "head.dense", "head.norm"})
    for (const std::string kind : {".weight", ".bias"}) expected.push_back(part + kind);
  expected.push_back("head.bias");
  CHECK(names == expected);
}

TEST_CASE("a fresh model guesses: its loss is ln 33") {
  const data::Batch batch = make_batch({random_row(1, 300), random_row(2, 200)});
  models::Esm2 model(Context{}, small_config(4, 4, 16), {.tokens_per_batch = batch.budget()});
  model.init_parameters(1);
  const models::LossSums sums = model.evaluate(batch);
  CHECK(sums.n_scored == batch.n_scored());
  CHECK(sums.loss_sum / static_cast<double>(sums.n_scored) == Approx(std::log(33.0)).margin(0.1));
}

TEST_CASE("rotary frequencies: computed, rounded, from a file") {
  models::Esm2Config config = small_config(1, 1, 32);
  models::ModelOptions options{.tokens_per_batch = 128, .training = false};
  const models::Esm2 plain(Context{}, config, options);
  REQUIRE(plain.inv_freq().size() == 16);
  CHECK(plain.inv_freq()[0] == 1.0f);
  CHECK(plain.inv_freq()[8] == Approx(0.01));

  config.inv_freq = models::InvFreq::kFp16Rounded;
  const models::Esm2 rounded(Context{}, config, options);
  for (size_t i = 0; i < 16; ++i) {
    CHECK(rounded.inv_freq()[i] == static_cast<float>(at::Half(plain.inv_freq()[i])));
    CHECK(std::abs(rounded.inv_freq()[i] / plain.inv_freq()[i] - 1) < 5e-4f);
  }
  CHECK(rounded.inv_freq() != plain.inv_freq());

  config.inv_freq = models::InvFreq::kFile;
  CHECK_THROWS_AS(models::Esm2(Context{}, config, options), ConfigError);
  options.inv_freq.assign(15, 0.5f);
  CHECK_THROWS_AS(models::Esm2(Context{}, config, options), ConfigError);
  options.inv_freq.assign(16, 0.5f);
  CHECK(models::Esm2(Context{}, config, options).inv_freq() == options.inv_freq);
}

TEST_CASE("what cannot be is refused with the reason") {
  const models::ModelOptions options{.tokens_per_batch = 128, .training = false};
  models::Esm2Config odd = small_config(1, 2, 8);
  odd.hidden = 18;
  CHECK_THROWS_AS(models::Esm2(Context{}, odd, options), ConfigError);
  CHECK_THROWS_AS(models::Esm2(Context{.device = DeviceKind::kCuda}, small_config(1, 1, 8), options), DeviceError);

  models::Esm2 model = random_model(small_config(1, 2, 8), options);
  const data::Batch batch = make_batch({random_row(1, 40)});
  CHECK_THROWS_AS(model.forward(batch, {.contacts = true}), ConfigError);
  CHECK_THROWS_AS(model.forward_backward(batch), InternalError);
  CHECK_THROWS_AS(model.evaluate(make_batch({random_row(1, 40)}, 256)), InternalError);
  data::Batch wrong = batch;
  wrong.tokens[3] = 33;
  CHECK_THROWS_AS(model.evaluate(wrong), InternalError);
}

TEST_CASE("families are found by name") {
  CHECK(models::find_family("esm2").make(Context{}, small_config(1, 1, 8), {.tokens_per_batch = 128})->units().size() ==
        3);
  CHECK_THROWS_WITH(models::find_family("bert"), ContainsSubstring("esm2"));
}

}  // namespace esm::test
