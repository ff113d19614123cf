#include "train/step.h"

#include <cmath>

#include "support/batches.h"
#include "support/catch.h"
#include "support/models.h"
#include "support/steps.h"
#include "support/torch.h"

namespace esm::test {
namespace {

data::Batch small_batch() { return make_batch({random_row(1, 60), random_row(2, 33)}); }

void spoil(models::Model& model, const std::string& name) {
  for (nn::UnitStorage* unit : model.units())
    if (unit->find(name) >= 0) unit->view(nn::Role::kMaster, name).view({-1}).select(0, -1).fill_(NAN);
  model.sync_compute();
}

std::vector<std::vector<uint8_t>> weights(models::Model& model) { return unit_bytes(model, nn::Role::kMaster); }

}  // namespace

TEST_CASE("a step tells what it did") {
  models::Esm2 model = random_model(small_config(2, 2, 8), {.tokens_per_batch = 128});
  train::Optimizer optimizer({}, model.units(), {});
  const data::Batch batch = small_batch();
  const double loss = model.evaluate(batch).loss_sum;
  for (int64_t updates = 1; updates <= 3; ++updates) {
    const train::StepOutcome got = one_step({}, model, optimizer, batch, 1e-3);
    if (updates == 1) CHECK(got.sums.loss_sum == Approx(loss));
    CHECK(got.sums.n_scored == batch.n_scored());
    CHECK(got.updates == updates);
    CHECK((!got.skipped && got.nonfinite.empty() && got.grad_norm > 0));
  }
  CHECK(model.evaluate(batch).loss_sum < loss);
  CHECK(optimizer.updates() == 3);
}

TEST_CASE("what gradients held before a step does not matter, with and without scored rows at first") {
  models::Esm2 model = random_model(small_config(2, 2, 8), {.tokens_per_batch = 128});
  data::Batch silent = small_batch();
  silent.scored_rows.clear();
  silent.targets.clear();
  const auto gradients = [&] { return gradient_bytes(model); };
  const auto leave = [&](double value) {
    for (nn::UnitStorage* unit : model.units())
      for (size_t i = 0; i < unit->entries().size(); ++i) unit->view(nn::Role::kGrad, i).fill_(value);
  };
  model.zero_grad();
  model.accumulate(small_batch());
  const auto one = gradients();
  model.accumulate(small_batch());
  const auto two = gradients();

  leave(NAN);
  model.begin_step();
  model.accumulate(small_batch());
  CHECK(gradients() == one);
  model.accumulate(small_batch());
  CHECK(gradients() == two);

  leave(7);
  model.begin_step();
  model.accumulate(silent);
  model.accumulate(small_batch());
  CHECK(gradients() == one);

  leave(7);
  model.begin_step();
  model.accumulate(silent);
  for (nn::UnitStorage* unit : model.units())
    for (const double value : values(unit->flat(nn::Role::kGrad))) REQUIRE(value == 0);
}

TEST_CASE("a step that is not finite changes no weight and names the parameter") {
  models::Esm2 model = random_model(small_config(2, 2, 8), {.tokens_per_batch = 128});
  train::Optimizer optimizer({}, model.units(), {});
  one_step({}, model, optimizer, small_batch(), 1e-3);
  const auto before = weights(model);

  model.begin_step();
  model.accumulate(small_batch());
  for (nn::UnitStorage* unit : model.units())
    if (unit->find("layers.1.ffn.fc1.weight") >= 0)
      unit->view(nn::Role::kGrad, "layers.1.ffn.fc1.weight").view({-1}).select(0, -1).fill_(INFINITY);
  train::StepQueue queue({}, optimizer);
  optimizer.update(model.loss_sums(), 1e-3, 1.0);
  queue.push({});
  const train::StepOutcome got = queue.pop();
  CHECK(got.skipped);
  CHECK(got.nonfinite == "layers.1.ffn.fc1.weight");
  CHECK(got.updates == 1);
  CHECK(weights(model) == before);

  spoil(model, "head.bias");
  const train::StepOutcome spoiled = one_step({}, model, optimizer, small_batch(), 1e-3);
  CHECK(spoiled.skipped);
  CHECK(!spoiled.nonfinite.empty());
}

TEST_CASE("a batch without scored rows is skipped, not called not finite") {
  models::Esm2 model = random_model(small_config(1, 2, 8), {.tokens_per_batch = 128});
  train::Optimizer optimizer({}, model.units(), {});
  data::Batch batch = small_batch();
  batch.scored_rows.clear();
  batch.targets.clear();
  const train::StepOutcome got = one_step({}, model, optimizer, batch, 1e-3);
  CHECK((got.skipped && got.nonfinite.empty() && got.updates == 0));
  CHECK(std::isnan(got.loss()));
}

TEST_CASE("outcomes come out in order, a full queue is refused") {
  models::Esm2 model = random_model(small_config(1, 2, 8), {.tokens_per_batch = 128});
  train::Optimizer optimizer({}, model.units(), {});
  train::StepQueue queue({}, optimizer);
  for (int64_t i = 0; i < train::StepQueue::kSlots; ++i) {
    model.begin_step();
    model.accumulate(small_batch());
    optimizer.update(model.loss_sums(), 1e-3, 1.0);
    queue.push({.step = i + 1});
  }
  CHECK_THROWS_AS(queue.push({}), InternalError);
  for (int64_t i = 0; i < train::StepQueue::kSlots; ++i) {
    const train::StepOutcome got = queue.pop();
    CHECK((got.step == i + 1 && got.updates == i + 1));
  }
  CHECK_THROWS_AS(queue.pop(), InternalError);
}

}  // namespace esm::test
