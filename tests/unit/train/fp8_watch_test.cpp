// Statistics of quantized products and amax values that were not finite, through training steps.
#include "train/fp8_watch.h"

#include <cmath>
#include <limits>
#include <set>

#include "support/models.h"
#include "support/recipes.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Precision;

constexpr int64_t kTokens = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Watched {
  std::vector<train::Fp8Watch::Seen> seen;
  std::vector<train::StepOutcome> outcomes;
};

/// Steps on some_batch(1), some_batch(11) and so on, one a micro-batch.
Watched watched_steps(models::Esm2& model, int64_t steps, int64_t every_steps, int64_t micro_batches = 1) {
  const Context context{.threads = 1};
  train::Optimizer optimizer(context, model.units(), {}, {});
  train::StepQueue queue(context, optimizer);
  train::Fp8Watch watch(context, model, every_steps);
  const auto comm = dist::make_single_comm();
  train::RunConfig config;
  config.train.micro_batches = micro_batches;
  config.train.max_steps = steps;
  config.optimizer.lr = 1e-3;
  config.schedule.warmup_steps = 0;
  uint64_t seed = 1;
  Watched result;
  for (int64_t step = 0; step < steps; ++step) {
    const auto next = [&](data::Batch& batch) {
      batch = some_batch(seed);
      seed += 10;
    };
    train::train_step({model, next, optimizer, queue, *comm, config, &watch}, step);
    result.outcomes.push_back(queue.pop());
    result.seen.push_back(watch.pop(result.outcomes.back().sums.n_scored));
  }
  return result;
}

models::Esm2 model_of(Precision precision, std::vector<Precision> layers = {}) {
  return random_model(small_config(2, 2, 32),
                      {.precision = precision, .layer_precision = std::move(layers), .tokens_per_batch = kTokens});
}

at::Tensor weight(models::Esm2& model, nn::Role role, const std::string& name) {
  for (nn::UnitStorage* unit : model.units())
    if (unit->find(name) >= 0) return unit->view(role, name);
  FAIL("no parameter " << name);
  return {};
}

/// One element of the FP32 weights.
void plant(models::Esm2& model, const std::string& name, float value) {
  weight(model, nn::Role::kMaster, name).view({-1}).select(0, 5).fill_(value);
  model.sync_compute();
}

const train::TensorStatistics& find(const train::StepStatistics& row, const std::string& layer,
                                    const std::string& tensor) {
  for (const train::TensorStatistics& t : row.tensors)
    if (t.layer == layer && t.tensor == tensor) return t;
  FAIL("no row of " << layer << "." << tensor);
  return row.tensors.front();
}

}  // namespace

TEST_CASE("statistics come at multiples of the interval, a row a tensor and layer") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  CAPTURE(precision::find_recipe(precision).name);
  models::Esm2 model = model_of(precision);
  const Watched got = watched_steps(model, 7, 3);
  const bool whole = model.scales() != nullptr;
  for (int64_t step = 1; step <= 7; ++step) {
    const auto& seen = got.seen[static_cast<size_t>(step - 1)];
    CHECK(seen.nonfinite.empty());
    REQUIRE(seen.statistics.has_value() == (step % 3 == 0));
    if (step % 3 != 0) continue;
    const train::StepStatistics& row = *seen.statistics;
    CHECK(row.step == step);
    std::set<std::string> names;
    for (const train::TensorStatistics& t : row.tensors) {
      CAPTURE(t.layer, t.tensor, t.amax, t.scale, t.underflow, t.overflow);
      names.insert(t.layer + "." + t.tensor);
      CHECK((t.underflow >= 0 && t.underflow < 0.9));
      CHECK((t.overflow >= 0 && t.overflow < 0.5));
      CHECK(std::isfinite(t.amax) == whole);
      CHECK(std::isfinite(t.scale) == whole);
      if (!whole) continue;
      CHECK((t.amax > 0 && t.scale > 0));
      if (precision != Precision::kNvfp4) CHECK(std::exp2(std::round(std::log2(t.scale))) == t.scale);
    }
    CHECK(names.size() == 24);
    CHECK(row.tensors.size() == 24);
    for (const std::string name : {"layers.0.qkv.x", "layers.1.out.weight", "layers.0.fc1.dy", "layers.1.fc2.x"})
      CHECK(names.contains(name));
    REQUIRE(row.layers.size() == 2);
    double squares = 0;
    for (size_t l = 0; l < 2; ++l) {
      CHECK(row.layers[l].layer == fmt::format("layers.{}", l));
      CHECK(row.layers[l].variance > 0);
      CHECK(row.layers[l].grad_norm > 0);
      squares += row.layers[l].grad_norm * row.layers[l].grad_norm;
    }
    // Embedding and head have their share of the whole norm.
    CHECK(std::sqrt(squares) < got.outcomes[static_cast<size_t>(step - 1)].grad_norm);
  }
}

TEST_CASE("figures of a first step are those of its tensors") {
  const Precision precision = GENERATE(Precision::kFp8Delayed, Precision::kFp8Current);
  CAPTURE(precision::find_recipe(precision).name);
  models::Esm2 model = model_of(precision), same = model_of(precision);
  const data::Batch batch = some_batch(1);
  const at::Tensor out =
      same.forward(batch, {.hidden_states = true}).hidden_TD[1].narrow(0, 0, batch.real_tokens).to(at::kDouble);
  const at::Tensor w = weight(same, nn::Role::kCompute, "layers.1.ffn.fc1.weight").to(at::kFloat);
  const train::StepStatistics row = watched_steps(model, 1, 1).seen[0].statistics.value();
  const double mean = out.mean().item<double>();
  CHECK(row.layers[0].mean == Approx(mean).epsilon(1e-9));
  CHECK(row.layers[0].variance == Approx(out.square().mean().item<double>() - mean * mean).epsilon(1e-9));
  const train::TensorStatistics& fc1 = find(row, "layers.1", "fc1.weight");
  const double amax = w.abs().max().item<double>(), scale = std::exp2(std::floor(std::log2(448 / amax)));
  CHECK(fc1.amax == amax);
  CHECK(fc1.scale == scale);
  // E4M3 rounds to 0 up to half of its least code, 2^-9.
  const double zeros = w.mul(scale).abs().le(std::ldexp(1.0, -10)).sum().item<double>();
  CHECK(fc1.underflow == zeros / static_cast<double>(w.numel()));
  CHECK(fc1.overflow == w.mul(scale).abs().ge(432).sum().item<double>() / static_cast<double>(w.numel()));
}

TEST_CASE("amax is that of the whole step, of weights too, which are quantized with its first micro-batch") {
  const Precision precision = GENERATE(Precision::kFp8Delayed, Precision::kFp8Current);
  CAPTURE(precision::find_recipe(precision).name);
  models::Esm2 once = model_of(precision), thrice = model_of(precision);
  const train::StepStatistics first = watched_steps(once, 1, 1).seen[0].statistics.value(),
                              all = watched_steps(thrice, 1, 1, 3).seen[0].statistics.value();
  for (const train::TensorStatistics& t : first.tensors) {
    CAPTURE(t.layer, t.tensor);
    const double amax = find(all, t.layer, t.tensor).amax;
    if (t.tensor.ends_with(".weight"))
      CHECK(amax == t.amax);
    else
      CHECK(amax >= t.amax);
  }
}

TEST_CASE("watching changes no result") {
  const auto run = [](int64_t every) {
    models::Esm2 model = model_of(Precision::kFp8Delayed);
    watched_steps(model, 4, every, 2);
    return unit_bytes(model, nn::Role::kMaster);
  };
  CHECK(run(1) == run(0));
}

TEST_CASE("layers in BF16 have no tensors to be watched; a model of them nothing at all") {
  models::Esm2 mixed = model_of(Precision::kBf16, {Precision::kBf16, Precision::kFp8Current});
  const train::StepStatistics row = watched_steps(mixed, 1, 1).seen[0].statistics.value();
  CHECK(row.tensors.size() == 12);
  for (const train::TensorStatistics& t : row.tensors) CHECK(t.layer == "layers.1");
  CHECK(row.layers.size() == 2);

  models::Esm2 plain = model_of(Precision::kBf16);
  CHECK(plain.scales() == nullptr);
  CHECK(plain.watched().empty());
  for (const auto& seen : watched_steps(plain, 2, 1).seen) {
    CHECK_FALSE(seen.statistics.has_value());
    CHECK(seen.nonfinite.empty());
  }
}

TEST_CASE("a weight that is not finite is named in every step, and the rest trains on") {
  const Precision precision = GENERATE(Precision::kFp8Delayed, Precision::kFp8Current);
  const int64_t micro_batches = GENERATE(1, 2);
  const bool statistics = GENERATE(false, true);
  CAPTURE(precision::find_recipe(precision).name, micro_batches, statistics);
  models::Esm2 model = model_of(precision);
  plant(model, "layers.1.ffn.fc1.weight", kInfinity);
  const Watched got = watched_steps(model, 3, statistics ? 1 : 0, micro_batches);
  for (const auto& seen : got.seen) CHECK(seen.nonfinite == std::vector<std::string>{"layers.1.ffn.fc1.weight (1)"});
  // Saturated by a scale that is finite.
  for (const train::StepOutcome& outcome : got.outcomes) {
    CHECK_FALSE(outcome.skipped);
    CHECK(std::isfinite(outcome.loss()));
  }
}

TEST_CASE("activations that are not finite are named, the weights stay, and the scales come through it") {
  const Precision precision = GENERATE(Precision::kFp8Delayed, Precision::kFp8Current);
  CAPTURE(precision::find_recipe(precision).name);
  models::Esm2 model = model_of(precision);
  const Watched before = watched_steps(model, 2, 0);
  CHECK(before.seen[1].nonfinite.empty());
  const float good = weight(model, nn::Role::kMaster, "layers.1.ffn.fc1.bias")[5].item<float>();
  plant(model, "layers.1.ffn.fc1.bias", kInfinity);
  const auto weights = unit_bytes(model, nn::Role::kMaster);
  const Watched during = watched_steps(model, 2, 1);
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(during.seen[i].nonfinite, during.outcomes[i].nonfinite, during.outcomes[i].skipped);
    const auto& names = during.seen[i].nonfinite;
    CHECK(std::find(names.begin(), names.end(), "layers.1.ffn.fc2.x (1)") != names.end());
    CHECK(during.seen[i].statistics.has_value());
    CHECK(during.outcomes[i].skipped);
    CHECK_FALSE(during.outcomes[i].nonfinite.empty());
  }
  CHECK((unit_bytes(model, nn::Role::kMaster) == weights));
  // Nothing of it stays in scales.
  plant(model, "layers.1.ffn.fc1.bias", good);
  const Watched after = watched_steps(model, 2, 1);
  for (const auto& seen : after.seen) {
    CHECK(seen.nonfinite.empty());
    for (const train::TensorStatistics& t : seen.statistics->tensors) CHECK((std::isfinite(t.amax) && t.scale > 0));
  }
  for (const train::StepOutcome& outcome : after.outcomes) CHECK_FALSE(outcome.skipped);
  CHECK(std::abs(after.outcomes[0].loss() - before.outcomes[1].loss()) < 1);
}

}  // namespace esm::test
