// Our packed run against Hugging Face transformers (padded), values in tests/data/golden.
#include <cmath>
#include <map>

#include "ops/adamw.h"
#include "ops/update.h"
#include "parity/golden.h"
#include "parity/oracle.h"
#include "support/compare.h"
#include "support/torch.h"

namespace esm::test {
namespace {

/// The first `rows` rows.
std::vector<double> real_rows(const at::Tensor& x, int64_t rows) { return values(x.narrow(0, 0, rows)); }

constexpr models::ModelOptions kTraining{.precision = precision::Precision::kFp32, .tokens_per_batch = 128};

}  // namespace

TEST_CASE("golden outputs: logits, hidden states, contacts") {
  const std::string folder = GENERATE("hf_d16", "hf_d24");
  CAPTURE(folder);
  const Golden golden(folder);
  models::Esm2 model = golden.make_model(kTraining);
  const models::Outputs out = model.forward(golden.batch, {.logits = true, .hidden_states = true, .contacts = true});

  const int64_t rows = golden.batch.real_tokens;
  CHECK(difference(real_rows(out.logits_TV, rows), golden.packed("logits")).max_abs < 1e-5);
  REQUIRE(static_cast<int64_t>(out.hidden_TD.size()) == golden.config.layers + 1);
  for (size_t l = 0; l < out.hidden_TD.size(); ++l) {
    CAPTURE(l);
    CHECK(difference(real_rows(out.hidden_TD[l], rows), golden.packed(fmt::format("hidden.{}", l))).max_abs < 1e-5);
  }
  const models::Outputs embedded = model.forward(golden.batch, {.embeddings = true});
  CHECK(embedded.hidden_TD.empty());
  CHECK(difference(real_rows(embedded.embeddings_TD, rows), real_rows(out.hidden_TD.back(), rows)).max_abs == 0);
  const std::vector<double> contacts = golden.io("contacts");
  const int64_t side = golden.padded_length - 2;
  for (size_t s = 0; s < golden.lengths.size(); ++s) {
    const int64_t n = golden.lengths[s] - 2;
    REQUIRE(out.contacts[s].sizes() == at::IntArrayRef({n, n}));
    std::vector<double> expected;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) expected.push_back(contacts[(s * side + i) * side + j]);
    CHECK(difference(values(out.contacts[s]), expected).max_abs < 1e-5);
  }
}

TEST_CASE("golden loss and gradients") {
  const std::string folder = GENERATE("hf_d16", "hf_d24");
  CAPTURE(folder);
  const Golden golden(folder);
  models::ModelOptions options = kTraining;
  options.recompute = GENERATE(nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull);
  models::Esm2 model = golden.make_model(options);
  const models::LossSums sums = model.forward_backward(golden.batch);
  const double n = static_cast<double>(sums.n_scored);
  CHECK(sums.n_scored == golden.batch.n_scored());
  CHECK(std::abs(sums.loss_sum / n - golden.io("loss")[0]) < 1e-6);
  const models::LossSums evaluated = model.evaluate(golden.batch);
  CHECK(evaluated.loss_sum == sums.loss_sum);
  CHECK(evaluated.n_correct == sums.n_correct);

  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      std::vector<double> gradient = values(unit->view(nn::Role::kGrad, i));
      for (double& value : gradient) value /= n;  // ours is of the sum, theirs of the mean
      const std::string& name = unit->entries()[i].spec.name;
      check_close(name, gradient, golden.gradient(name), {1e-5, 1e-5});
    }
}

namespace {

struct Trajectory {
  std::vector<double> losses, norms;
};

constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.98, kEps = 1e-8, kDecay = 0.01;

Trajectory train_ours(const Golden& golden) {
  const Context context{.threads = 1};
  models::Esm2 model = golden.make_model(kTraining);
  for (nn::UnitStorage* unit : model.units()) unit->allocate_moments();
  Trajectory result;
  for (int64_t step = 1; step <= 20; ++step) {
    model.zero_grad();
    const models::LossSums sums = model.forward_backward(golden.batch);
    const double n = static_cast<double>(sums.n_scored);
    std::vector<at::Tensor> gradients;
    for (nn::UnitStorage* unit : model.units()) gradients.push_back(unit->flat(nn::Role::kGrad));
    const double norm = std::sqrt(ops::sum_of_squares(context, gradients)) / n;
    result.losses.push_back(sums.loss_sum / n);
    result.norms.push_back(norm);
    const at::Tensor numbers = ops::adamw_numbers_tensor(
        context, ops::adamw_numbers(step, kLr, kBeta1, kBeta2, std::min(1.0, 1.0 / (norm + 1e-6)) / n));
    const ops::AdamWGroup group{.weight_decay = kDecay};
    for (nn::UnitStorage* unit : model.units())
      ops::adamw(context, {.master = unit->flat(nn::Role::kMaster),
                           .grad = unit->flat(nn::Role::kGrad),
                           .exp_avg = unit->flat(nn::Role::kExpAvg),
                           .exp_avg_sq = unit->flat(nn::Role::kExpAvgSq),
                           .numbers = numbers,
                           .group = std::span(&group, 1),
                           .beta1 = kBeta1,
                           .beta2 = kBeta2,
                           .eps = kEps});
    model.sync_compute();
  }
  return result;
}

/// The same in FP64 by the oracle: no rounding to speak of.
Trajectory train_exactly(const Golden& golden) {
  models::Esm2 model = golden.make_model(kTraining);
  Oracle oracle(model);
  std::map<std::string, at::Tensor> m, v;
  Trajectory result;
  const double n = static_cast<double>(golden.batch.n_scored());
  for (int step = 1; step <= 20; ++step) {
    result.losses.push_back(oracle.run(golden.batch).loss_sum / n);
    double squares = 0;
    for (const auto& [name, leaf] : oracle.parameters()) squares += leaf.grad().square().sum().item<double>();
    const double norm = std::sqrt(squares) / n;
    result.norms.push_back(norm);
    for (const auto& [name, leaf] : oracle.parameters()) {
      const at::Tensor g = leaf.grad().mul(std::min(1.0, 1.0 / (norm + 1e-6)) / n);
      m[name] = step == 1 ? g.mul(1 - kBeta1) : m[name].mul(kBeta1).add(g.mul(1 - kBeta1));
      v[name] = step == 1 ? g.square().mul(1 - kBeta2) : v[name].mul(kBeta2).add(g.square().mul(1 - kBeta2));
      const at::Tensor root = v[name].div(1 - std::pow(kBeta2, step)).sqrt().add(kEps);
      const at::Tensor p = leaf.detach();
      p.mul_(1 - kLr * kDecay).sub_(m[name].div(root).mul(kLr / (1 - std::pow(kBeta1, step))));
    }
  }
  return result;
}

}  // namespace

// Adam divides a gradient by its own size, so the rounding of tiny gradients grows from step to step: the golden FP32
// run itself drifts from the exact one (its norms by up to 5.5e-5 at step 20). What is asked of ours beyond 1e-5 is to
// stay within a small multiple of that drift.
TEST_CASE("golden AdamW: losses and gradient norms of 20 steps") {
  const std::string folder = GENERATE("hf_d16", "hf_d24");
  CAPTURE(folder);
  const Golden golden(folder);
  const Trajectory ours = train_ours(golden), exact = train_exactly(golden);
  const std::vector<double> losses = golden.io("adamw20.losses"), norms = golden.io("adamw20.grad_norms");
  double drift = 0;
  for (size_t i = 0; i < 20; ++i) {
    CAPTURE(i, ours.losses[i], losses[i], ours.norms[i], norms[i], exact.norms[i]);
    CHECK(std::abs(ours.losses[i] - losses[i]) < 1e-5);
    CHECK(std::abs(exact.losses[i] - losses[i]) < 1e-5);
    drift = std::max(drift, std::abs(exact.norms[i] - norms[i]));
    CHECK(std::abs(ours.norms[i] - norms[i]) < (i < 7 ? 1e-5 : 1e-5 + 4 * drift));
  }
  CHECK(drift < 1e-4);
}

}  // namespace esm::test
