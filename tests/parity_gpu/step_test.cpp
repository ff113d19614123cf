// Training steps on a CUDA device: replayed graphs against the work itself, and no waiting within a step.
#include <cmath>

#include "device/stream.h"
#include "parity_gpu/device.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/steps.h"
#include "support/torch.h"
#include "train/step.h"

namespace esm::test {
namespace {

using precision::Precision;

constexpr int64_t kTokens = 512;

/// Few long sequences, many short ones (another capacity), more scored rows than one chunk of the head holds.
data::Batch batch_number(uint64_t i) {
  std::vector<Row> rows;
  switch (i % 3) {
    case 0: rows = {random_row(i, 128), random_row(i + 100, 90), random_row(i + 200, 77)}; break;
    case 1:
      for (uint64_t k = 0; k < 60; ++k) rows.push_back(random_row(1000 * i + k, 1 + static_cast<int64_t>(k % 11)));
      break;
    case 2:
      rows = {random_row(i, 128), random_row(i + 1, 128), random_row(i + 2, 128)};
      for (Row& row : rows)
        for (size_t t = 0; t < row.labels.size(); ++t) row.labels[t] = 4 + static_cast<int>(t % 20);
      break;
  }
  return make_batch(rows, kTokens);
}

struct Run {
  std::vector<double> losses, norms;
  std::vector<std::vector<uint8_t>> state;
  int64_t updates = 0;
  bool operator==(const Run&) const = default;
};

Run train_for(int64_t steps, const models::ModelOptions& options, bool forbid_waiting = false) {
  models::Esm2 model = random_model(gpu(), small_config(2, 4, 64), options);
  train::Optimizer optimizer(gpu(), model.units(), {}, {.graphs = options.graphs});
  train::StepQueue queue(gpu(), optimizer);
  const auto comm = dist::make_single_comm();
  train::RunConfig config;
  config.train.micro_batches = 2;
  config.train.max_steps = steps;
  config.train.clip_norm = 0.5;
  uint64_t next = 0;
  Run run;
  for (int64_t step = 0; step < steps; ++step) {
    {
      std::optional<device::ForbidWaiting> guard;
      // At first memory is allocated, GEMM plans are made, and graphs recorded.
      if (forbid_waiting && step >= 12) guard.emplace();
      train::train_step(
          {model, [&](data::Batch& batch) { batch = batch_number(next++); }, optimizer, queue, *comm, config}, step);
    }
    const train::StepOutcome got = queue.pop();
    run.losses.push_back(got.loss());
    run.norms.push_back(got.grad_norm);
    run.updates = got.updates;
  }
  for (nn::UnitStorage* unit : model.units())
    for (const nn::Role role : {nn::Role::kMaster, nn::Role::kCompute, nn::Role::kExpAvg, nn::Role::kExpAvgSq})
      run.state.push_back(bytes(unit->flat(role)));
  return run;
}

models::ModelOptions options_for(Precision precision, ops::AttentionKind kind) {
  return {.precision = precision, .tokens_per_batch = kTokens, .max_tokens = 128, .attention = kind};
}

}  // namespace

TEST_CASE("replayed steps equal the steps themselves bit for bit") {
  // The two with deterministic gradients.
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  models::ModelOptions options = options_for(precision, ops::AttentionKind::kSimple);
  const Run plain = train_for(16, options);
  options.graphs = true;
  const Run replayed = train_for(16, options);
  CHECK(plain.updates == 16);
  CHECK(plain.losses.back() != plain.losses.front());
  CHECK(plain.losses == replayed.losses);
  CHECK(plain.norms == replayed.norms);
  CHECK(plain.state == replayed.state);
  CHECK(train_for(16, options) == replayed);
}

TEST_CASE("a step waits for nothing, with every attention, with and without graphs") {
  const auto kind = GENERATE(ops::AttentionKind::kCudnn, ops::AttentionKind::kFlash2, ops::AttentionKind::kSimple);
  CAPTURE(ops::attention_kind_name(kind));
  models::ModelOptions options = options_for(Precision::kBf16, kind);
  const Run plain = train_for(18, options, /*forbid_waiting=*/true);
  options.graphs = true;
  const Run replayed = train_for(18, options, /*forbid_waiting=*/true);
  // Gradients of the fast backends vary in the last bits from run to run.
  for (size_t i = 0; i < plain.losses.size(); ++i)
    CHECK(replayed.losses[i] == Approx(plain.losses[i]).epsilon(i == 0 ? 1e-12 : 0.02));
}

TEST_CASE("waiting inside a step would be found") {
  const device::ForbidWaiting guard;
  CHECK_THROWS_AS(synchronize(gpu()), InternalError);
}

TEST_CASE("what is not finite is found on the device, by name, and changes nothing") {
  const bool graphs = GENERATE(false, true);
  models::Esm2 model = random_model(gpu(), small_config(2, 2, 16), {.tokens_per_batch = kTokens, .graphs = graphs});
  train::Optimizer optimizer(gpu(), model.units(), {}, {.graphs = graphs});
  const auto weights = [&] { return unit_bytes(model, nn::Role::kMaster); };
  for (int i = 0; i < 3; ++i) CHECK(!one_step(gpu(), model, optimizer, batch_number(0), 1e-3).skipped);
  const auto before = weights();
  train::StepQueue queue(gpu(), optimizer);
  for (const std::string name : {"head.bias", "embedding.weight", "layers.1.ffn.fc1.weight"}) {
    model.begin_step();
    model.accumulate(batch_number(0));
    for (nn::UnitStorage* unit : model.units())
      if (unit->find(name) >= 0) unit->view(nn::Role::kGrad, name).view({-1}).select(0, -1).fill_(NAN);
    optimizer.update(model.loss_sums(), 1e-3, 1.0);
    queue.push({});
    const train::StepOutcome got = queue.pop();
    CHECK((got.skipped && got.updates == 3));
    CHECK(got.nonfinite == name);
  }
  CHECK(weights() == before);
  CHECK(one_step(gpu(), model, optimizer, batch_number(0), 1e-3).updates == 4);
  CHECK(weights() != before);
}

}  // namespace esm::test
