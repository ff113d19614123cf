// Quantized products on a CUDA device against their emulation on the CPU, and against themselves.
#include <cmath>
#include <optional>

#include "device/stream.h"
#include "parity_gpu/device.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/recipes.h"
#include "support/steps.h"
#include "support/torch.h"
#include "train/fp8_watch.h"

namespace esm::test {

using precision::Precision;

TEST_CASE("quantized products: the device and its emulation on the CPU give the same model") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  CAPTURE(precision::find_recipe(precision).name);
  const data::Batch batch = some_batch();
  const models::Esm2Config config = small_config(2, 4, 64);
  models::ModelOptions options{.tokens_per_batch = batch.budget()};
  models::Esm2 exact = random_model(config, options);
  options.precision = precision;
  models::Esm2 here = random_model(config, options), there = random_model(gpu(), config, options);
  const double plain = exact.forward_backward(batch).loss_sum, expected = here.forward_backward(batch).loss_sum,
               actual = there.forward_backward(batch).loss_sum;
  CAPTURE(plain, expected, actual);
  const Departure emulation = departure(here, exact), device = departure(there, here);
  CAPTURE(emulation.worst, emulation.mean, device.worst, device.mean, device.name);
  CHECK(std::abs(actual / expected - 1) < 0.5 * std::abs(expected / plain - 1) + 2e-3);
  CHECK(device.mean < 0.7 * emulation.mean);
  CHECK(device.worst < emulation.worst);
  CHECK(emulation.mean > 0.01);
}

TEST_CASE("quantized products: several steps, with graphs and recompute, to the same bits") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  CAPTURE(precision::find_recipe(precision).name);
  const auto run = [&](bool graphs, nn::Recompute recompute) {
    models::Esm2 model = random_model(gpu(), small_config(3, 4, 64),
                                      {.precision = precision,
                                       .tokens_per_batch = 512,
                                       .max_tokens = 128,
                                       .recompute = recompute,
                                       .attention = ops::AttentionKind::kSimple,
                                       .graphs = graphs});
    return quantized_steps(gpu(), model, 8);
  };
  const QuantizedRun straight = run(false, nn::Recompute::kNone);
  CHECK(straight.losses.back() < straight.losses.front());
  for (const bool graphs : {false, true})
    for (const auto recompute : {nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull}) {
      CAPTURE(graphs, static_cast<int>(recompute));
      const QuantizedRun other = run(graphs, recompute);
      CHECK(other.losses == straight.losses);
      CHECK(other.weights == straight.weights);
      CHECK(other.scales == straight.scales);
    }
}

TEST_CASE("quantized products: a step waits for nothing, watched or not") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  const bool graphs = GENERATE(false, true);
  CAPTURE(precision::find_recipe(precision).name, graphs);
  models::Esm2 model = random_model(gpu(), small_config(2, 4, 64),
                                    {.precision = precision,
                                     .tokens_per_batch = 512,
                                     .max_tokens = 128,
                                     .attention = ops::AttentionKind::kCudnn,
                                     .graphs = graphs});
  train::Optimizer optimizer(gpu(), model.units(), {}, {.graphs = graphs});
  train::StepQueue queue(gpu(), optimizer);
  train::Fp8Watch watch(gpu(), model, 2);
  const auto comm = dist::make_single_comm();
  train::RunConfig config;
  config.train.max_steps = 12;
  const data::Batch batch = make_batch({random_row(1, 128), random_row(2, 90)}, 512);
  int64_t rows = 0;
  for (int64_t step = 0; step < 12; ++step) {
    {
      std::optional<device::ForbidWaiting> guard;
      if (step >= 8) guard.emplace();  // before that memory is allocated, plans are made, graphs recorded
      train::train_step({model, [&](data::Batch& next) { next = batch; }, optimizer, queue, *comm, config, &watch},
                        step);
    }
    const auto seen = watch.pop(queue.pop().sums.n_scored);
    CHECK(seen.statistics.has_value() == (step % 2 == 1));
    CHECK(seen.nonfinite.empty());
    if (!seen.statistics.has_value()) continue;
    ++rows;
    CHECK(seen.statistics->tensors.size() == 2 * 4 * 3);
    for (const train::TensorStatistics& tensor : seen.statistics->tensors) {
      CAPTURE(tensor.layer, tensor.tensor);
      CHECK((tensor.underflow >= 0 && tensor.underflow < 0.5));
      CHECK((tensor.overflow >= 0 && tensor.overflow < 0.1));
    }
  }
  CHECK(rows == 6);
}

}  // namespace esm::test
