// Quantized products on a CUDA device against their emulation on the CPU, and against themselves.
#include <cmath>

#include "parity_gpu/device.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/recipes.h"
#include "support/steps.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Precision;

}  // namespace

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
    models::Esm2 model = random_model(gpu(), small_config(2, 4, 64),
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

}  // namespace esm::test
