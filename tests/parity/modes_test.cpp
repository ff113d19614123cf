// BF16, recompute, repeated runs, accumulation and partly filled models against the plain FP32 run.
#include "parity/witness.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/torch.h"

namespace esm::test {
using precision::Precision;

TEST_CASE("BF16 loss and gradients are as near to exact ones as those of an independent BF16 program") {
  struct Case {
    int64_t layers, heads, head_dim;
    double gain;
  };
  constexpr double kSteep = 3;
  const Case c = GENERATE(Case{2, 4, 16, kMildGain}, Case{3, 20, 16, kMildGain}, Case{2, 20, 24, kMildGain},
                          Case{1, 2, 128, kMildGain}, Case{3, 20, 16, kSteep});
  CAPTURE(c.layers, c.heads, c.head_dim, c.gain);
  const data::Batch batch = some_batch();
  const models::Esm2Config config = small_config(c.layers, c.heads, c.head_dim);
  models::Esm2 model =
      random_model(Context{}, config, {.precision = Precision::kBf16, .tokens_per_batch = batch.budget()}, 7, c.gain);
  const Bf16Witness witness(model, batch);
  witness.check_loss(model.forward_backward(batch).loss_sum);
  witness.check_gradients(model);
  if (c.gain == kMildGain) witness.check_power(model);
}

TEST_CASE("recompute changes no bit") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const data::Batch batch = some_batch();
  const models::Esm2Config config = small_config(3, 2, 16);
  models::ModelOptions options{.precision = precision, .tokens_per_batch = batch.budget()};
  models::Esm2 keeps = random_model(config, options);
  const double loss = keeps.forward_backward(batch).loss_sum;
  const auto kept = [](const models::Esm2& model, const std::string& name) {
    for (const ops::MemoryPart& part : model.memory())
      if (part.name == name) return part.bytes;
    FAIL("no such part: " << name);
    return int64_t{0};
  };
  const std::string attention = "queries, keys, values", feed_forward = "feed-forward, before the GELU";
  const int64_t layers = GENERATE(0, 1, 2, 3);
  const int64_t buffers = layers == 0 ? 1 : config.layers - layers + 1;
  options.recompute_layers = layers;
  for (const nn::Recompute recompute : {nn::Recompute::kSelective, nn::Recompute::kFull}) {
    CAPTURE(static_cast<int>(recompute), layers);
    options.recompute = recompute;
    models::Esm2 repeats = random_model(config, options);
    for (int times = 0; times < 2; ++times) {  // the second time over what the first has left in shared buffers
      repeats.zero_grad();
      CHECK(repeats.forward_backward(batch).loss_sum == loss);
      CHECK(gradient_bytes(repeats) == gradient_bytes(keeps));
    }
    CHECK(kept(repeats, feed_forward) * config.layers == kept(keeps, feed_forward) * buffers);
    CHECK(kept(repeats, attention) * config.layers ==
          kept(keeps, attention) * (recompute == nn::Recompute::kFull ? buffers : config.layers));
  }
}

TEST_CASE("the same step twice gives the same bits") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const int threads = GENERATE(1, 2);
  const data::Batch batch = some_batch();
  models::Esm2 model =
      random_model(small_config(2, 2, 32), {.precision = precision, .tokens_per_batch = batch.budget()}, 3, threads);
  const double loss = model.forward_backward(batch).loss_sum;
  const auto first = gradient_bytes(model);
  model.zero_grad();
  CHECK(model.forward_backward(batch).loss_sum == loss);
  CHECK(gradient_bytes(model) == first);
}

TEST_CASE("gradients of micro-batches add up") {
  const data::Batch a = some_batch(1), b = some_batch(50);
  const models::Esm2Config config = small_config(2, 2, 16);
  models::Esm2 model = random_model(config, {.tokens_per_batch = a.budget()});
  std::vector<std::vector<double>> sums;
  for (const data::Batch* batch : {&a, &b}) {
    model.zero_grad();
    model.forward_backward(*batch);
    for (size_t u = 0; u < model.units().size(); ++u) {
      const std::vector<double> part = values(model.units()[u]->flat(nn::Role::kGrad));
      if (sums.size() <= u) sums.emplace_back(part.size(), 0.0);
      for (size_t i = 0; i < part.size(); ++i) sums[u][i] += part[i];
    }
  }
  model.zero_grad();
  model.forward_backward(a);
  model.forward_backward(b);
  for (size_t u = 0; u < model.units().size(); ++u)
    check_close(model.units()[u]->name(), values(model.units()[u]->flat(nn::Role::kGrad)), sums[u],
                operation_tolerance(DType::kF32, 2));
}

TEST_CASE("a batch smaller than the model's budget gives the same bits as a model of that size") {
  const data::Batch batch = some_batch();
  const models::Esm2Config config = small_config(2, 2, 16);
  const bool training = GENERATE(true, false);
  models::Esm2 exact = random_model(config, {.tokens_per_batch = batch.budget(), .training = training});
  models::Esm2 large = random_model(config, {.tokens_per_batch = 1024, .training = training});
  CHECK(exact.evaluate(batch).loss_sum == large.evaluate(batch).loss_sum);
  if (!training) return;
  exact.forward_backward(batch);
  large.forward_backward(batch);
  CHECK(gradient_bytes(exact) == gradient_bytes(large));
}

TEST_CASE("a batch with nothing scored adds nothing") {
  data::Batch batch = some_batch();
  models::Esm2 model = random_model(small_config(1, 2, 16), {.tokens_per_batch = batch.budget()});
  const auto before = gradient_bytes(model);
  batch.scored_rows.clear();
  batch.targets.clear();
  const models::LossSums sums = model.forward_backward(batch);
  CHECK(sums.loss_sum == 0);
  CHECK(sums.n_scored == 0);
  CHECK(model.evaluate(batch).loss_sum == 0);
  CHECK(gradient_bytes(model) == before);
}

TEST_CASE("every row may be scored: the head works in chunks") {
  const models::Esm2Config config = small_config(1, 2, 16);
  Row row = random_row(4, 512);
  for (size_t i = 0; i < row.labels.size(); ++i) row.labels[i] = 4 + static_cast<int>(i % 20);
  const data::Batch whole = make_batch({row});
  models::Esm2 model = random_model(config, {.tokens_per_batch = 512});
  const models::LossSums all = model.forward_backward(whole);
  std::vector<double> expected(model.units()[0]->flat_numel(), 0.0);
  const std::vector<double> actual = values(model.units()[0]->flat(nn::Role::kGrad));
  double loss = 0;
  for (int part = 0; part < 4; ++part) {  // the same in four batches that score a quarter each
    Row some = row;
    for (size_t i = 0; i < some.labels.size(); ++i)
      if (static_cast<int>(i / 128) != part) some.labels[i] = -1;
    model.zero_grad();
    loss += model.forward_backward(make_batch({some})).loss_sum;
    const std::vector<double> gradient = values(model.units()[0]->flat(nn::Role::kGrad));
    for (size_t i = 0; i < gradient.size(); ++i) expected[i] += gradient[i];
  }
  CHECK(all.n_scored == 512);
  CHECK(std::abs(all.loss_sum / loss - 1) < 1e-6);
  check_close("embedding.weight", actual, expected, model_tolerance(DType::kF32, 1, 512));
}

}  // namespace esm::test
