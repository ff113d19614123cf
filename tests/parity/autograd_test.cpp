// Our hand-written forward and backward against LibTorch autograd in FP64, on random shapes and packs.
#include "parity/oracle.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/torch.h"

namespace esm::test {
namespace {

struct Case {
  int64_t layers, heads, head_dim, ffn;
  std::vector<int64_t> lengths;
  models::Activation activation = models::Activation::kGeluErf;
  bool token_dropout = true;
  double label_smoothing = 0;
};

models::Esm2Config config_of(const Case& c) {
  models::Esm2Config config = small_config(c.layers, c.heads, c.head_dim);
  config.ffn = c.ffn;
  config.activation = c.activation;
  config.token_dropout = c.token_dropout;
  return config;
}

data::Batch batch_of(const Case& c) {
  std::vector<Row> rows;
  for (const int64_t length : c.lengths) rows.push_back(random_row(rows.size() + 1, length));
  return make_batch(rows);
}

/// Greatest difference of logits and of gradients, each as a multiple of its tolerance.
struct Excess {
  double loss = 0, logits = 0, gradients = 0;
};

Excess compare(const Case& c, Oracle::Fault fault) {
  const data::Batch batch = batch_of(c);
  models::Esm2 model =
      random_model(config_of(c), {.tokens_per_batch = batch.budget(), .label_smoothing = c.label_smoothing});
  Oracle oracle(model);
  oracle.fault = fault;
  const Oracle::Result expected = oracle.run(batch, c.label_smoothing);
  const Tolerance tolerance = model_tolerance(DType::kF32, c.layers, batch.real_tokens);
  Excess excess;
  const auto worst = [&](double& of, const Difference& d) {
    of = std::max({of, d.relative_l2 / tolerance.relative_l2, d.of_max / tolerance.of_max});
  };

  const at::Tensor logits = model.forward(batch, {.logits = true}).logits_TV;
  for (size_t s = 0; s < c.lengths.size(); ++s) {
    const at::Tensor own = logits.narrow(0, batch.cu_seqlens[s], c.lengths[s]);
    const size_t extra = expected.logits[s].size() - static_cast<size_t>(own.numel());  // rows that leaked in
    worst(excess.logits, difference(values(own), std::span(expected.logits[s]).subspan(extra)));
  }
  const models::LossSums sums = model.forward_backward(batch);
  excess.loss = std::abs(sums.loss_sum / expected.loss_sum - 1) / tolerance.relative_l2;
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const std::string& name = unit->entries()[i].spec.name;
      const Difference d = difference(values(unit->view(nn::Role::kGrad, i)), oracle.gradient(name));
      UNSCOPED_INFO(fmt::format("{}: {:.2e} {:.2e}", name, d.relative_l2, d.of_max));
      worst(excess.gradients, d);
    }
  return excess;
}

const std::vector<int64_t> kLengths{5, 1, 33, 2, 64, 17, 3};

}  // namespace

TEST_CASE("loss, logits and all gradients equal autograd in FP64") {
  const auto [name, c] = GENERATE(table<std::string, Case>({
      {"head dim 16", {3, 4, 16, 0, kLengths}},
      {"head dim 24", {2, 2, 24, 0, {65, 30, 9}}},
      {"head dim 32, no tail", {2, 2, 32, 0, {97, 31}}},
      {"head dim 64", {1, 2, 64, 0, {50, 49, 48}}},
      {"head dim 80, odd ffn", {1, 1, 80, 77, {20, 41}}},
      {"head dim 6", {2, 5, 6, 0, kLengths}},
      {"tanh form", {2, 2, 16, 96, kLengths, models::Activation::kGeluTanh}},
      {"no token dropout", {2, 2, 16, 0, kLengths, models::Activation::kGeluErf, false}},
      {"label smoothing", {2, 2, 16, 0, kLengths, models::Activation::kGeluErf, true, 0.1}},
      {"one long sequence", {2, 2, 16, 0, {300}}},
  }));
  CAPTURE(name);
  const Excess excess = compare(c, Oracle::Fault::kNone);
  CHECK(excess.loss <= 1);
  CHECK(excess.logits <= 1);
  CHECK(excess.gradients <= 1);
}

TEST_CASE("planted errors exceed the bounds by far") {
  const auto [name, fault] = GENERATE(table<std::string, Oracle::Fault>({
      {"key positions", Oracle::Fault::kKeyPositions},
      {"rotary pairs", Oracle::Fault::kRotaryPairs},
      {"token dropout", Oracle::Fault::kNoTokenDropout},
      {"leak between sequences", Oracle::Fault::kLeak},
      {"tanh GELU", Oracle::Fault::kTanhGelu},
      {"query scale", Oracle::Fault::kNoQueryScale},
  }));
  CAPTURE(name);
  const Excess excess = compare({2, 2, 16, 0, kLengths}, fault);
  CHECK(excess.logits > 5);
  CHECK(excess.gradients > 5);
}

}  // namespace esm::test
