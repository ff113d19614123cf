// Quantized products, emulated on the CPU.
#include "parity/witness.h"
#include "support/recipes.h"
#include "support/torch.h"

namespace esm::test {

using precision::Precision;

TEST_CASE("quantized products: near exact gradients, as far off as the formats are coarse") {
  struct Case {
    Precision precision;
    double least, most;  // mean relative L2 of gradients
  };
  // A product of two E4M3 operands is off by 2^-5 / sqrt 3 twice, E5M2 by twice that, E2M1 by eight times.
  const Case c = GENERATE(Case{Precision::kFp8Delayed, 0.03, 0.2}, Case{Precision::kFp8Current, 0.03, 0.2},
                          Case{Precision::kFp8Block, 0.02, 0.15}, Case{Precision::kFp8Outer, 0.02, 0.15},
                          Case{Precision::kMxfp8, 0.02, 0.15}, Case{Precision::kNvfp4, 0.1, 0.6});
  CAPTURE(precision::find_recipe(c.precision).name);
  const data::Batch batch = some_batch();
  const models::Esm2Config config = small_config(2, 4, 64);
  models::ModelOptions options{.tokens_per_batch = batch.budget()};
  models::Esm2 exact = random_model(config, options);
  options.precision = c.precision;
  models::Esm2 model = random_model(config, options);
  const double expected = exact.forward_backward(batch).loss_sum, loss = model.forward_backward(batch).loss_sum;
  CAPTURE(expected, loss);
  CHECK(std::abs(loss / expected - 1) < c.most / 2);
  const Departure off = departure(model, exact);
  CAPTURE(off.mean, off.worst, off.name);
  CHECK((off.mean > c.least && off.mean < c.most));
  CHECK(off.worst < 2.5 * c.most);
}

TEST_CASE("quantized products: several steps and recompute, to the same bits") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  CAPTURE(precision::find_recipe(precision).name);
  const auto run = [&](nn::Recompute recompute, int threads) {
    models::Esm2 model = random_model(
        small_config(3, 4, 16), {.precision = precision, .tokens_per_batch = 512, .recompute = recompute}, 7, threads);
    return quantized_steps(Context{.threads = threads}, model, 5);
  };
  const QuantizedRun straight = run(nn::Recompute::kNone, 1);
  CHECK(straight.losses.back() != straight.losses.front());
  for (const auto recompute : {nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull}) {
    CAPTURE(static_cast<int>(recompute));
    const QuantizedRun other = run(recompute, 1);
    CHECK(other.losses == straight.losses);
    CHECK(other.weights == straight.weights);
    CHECK(other.scales == straight.scales);
  }
}

TEST_CASE("an evaluation leaves no trace in the scales") {
  const Precision precision = GENERATE(Precision::kFp8Delayed, Precision::kFp8Current);
  const data::Batch batch = some_batch(1), other = some_batch(50);
  const auto run = [&](bool evaluates) {
    models::Esm2 model =
        random_model(small_config(1, 2, 32), {.precision = precision, .tokens_per_batch = batch.budget()});
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      if (evaluates) model.evaluate(other);
      model.begin_step();
      losses.push_back(model.forward_backward(batch).loss_sum);
      model.end_step();
      if (evaluates) CHECK(model.evaluate(other).loss_sum > 0);
    }
    return std::pair{losses, gradient_bytes(model)};
  };
  CHECK(run(false) == run(true));
}

TEST_CASE("padding has no say in scales and gradients") {
  const Precision precision = GENERATE(from_range(kQuantizedRecipes));
  CAPTURE(precision::find_recipe(precision).name);
  const std::vector<Row> rows{random_row(1, 128), random_row(2, 96)};
  const models::Esm2Config config = small_config(1, 2, 32);
  models::Esm2 model = random_model(config, {.precision = precision, .tokens_per_batch = 512}),
               padded = random_model(config, {.precision = precision, .tokens_per_batch = 512});
  const double loss = model.forward_backward(make_batch(rows, 256)).loss_sum;
  CHECK(padded.forward_backward(make_batch(rows, 512)).loss_sum == Approx(loss).epsilon(1e-5));
  const Departure off = departure(padded, model);
  CAPTURE(off.worst, off.name);
  CHECK(off.worst < 1e-4);
}

}  // namespace esm::test
