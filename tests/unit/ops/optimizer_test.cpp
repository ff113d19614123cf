#include <cmath>
#include <cstring>
#include <limits>

#include "ops/adamw.h"
#include "ops/update.h"
#include "ops/version.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {

TEST_CASE("AdamW follows PyTorch's formula over several steps") {
  const int64_t n = 20032;
  const double lr = 3e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, decay = 0.1, scale = 0.01;
  const Context context{.threads = 2};
  const at::Tensor p = random_tensor(1, {n}), m = at::zeros({n}, at::kFloat), v = at::zeros({n}, at::kFloat);
  // The second half of the elements has a lower rate and no decay.
  const std::vector<ops::AdamWGroup> group{{.lr_factor = 1, .weight_decay = decay}, {.lr_factor = 0.1}};
  const at::Tensor groups = at::zeros({n / 64}, at::kByte);
  groups.narrow(0, n / 128, n / 64 - n / 128).fill_(1);
  std::vector<double> pd = values(p), md(n, 0.0), vd(n, 0.0);
  for (int64_t step = 1; step <= 5; ++step) {
    const at::Tensor g = random_tensor(10 + static_cast<uint64_t>(step), {n});
    ops::adamw(context,
               {.master = p,
                .grad = g,
                .exp_avg = m,
                .exp_avg_sq = v,
                .numbers = ops::adamw_numbers_tensor(context, ops::adamw_numbers(step, lr, beta1, beta2, scale)),
                .groups = groups,
                .group = group,
                .beta1 = beta1,
                .beta2 = beta2,
                .eps = eps});
    const std::vector<double> gd = values(g);
    for (int64_t i = 0; i < n; ++i) {
      const double grad = gd[i] * scale, t = static_cast<double>(step);
      const ops::AdamWGroup& of = group[i < n / 128 * 64 ? 0 : 1];
      const double rate = lr * of.lr_factor;
      pd[i] *= 1 - rate * of.weight_decay;
      md[i] = beta1 * md[i] + (1 - beta1) * grad;
      vd[i] = beta2 * vd[i] + (1 - beta2) * grad * grad;
      pd[i] -= rate / (1 - std::pow(beta1, t)) * md[i] / (std::sqrt(vd[i]) / std::sqrt(1 - std::pow(beta2, t)) + eps);
    }
  }
  check_close("parameters", values(p), pd, operation_tolerance(DType::kF32, 5));
  check_close("first moment", values(m), md, operation_tolerance(DType::kF32, 5));
  check_close("second moment", values(v), vd, operation_tolerance(DType::kF32, 5));
}

TEST_CASE("AdamW leaves padding at 0 and works on views of flat storage") {
  const at::Tensor flat = at::zeros({256}, at::kFloat), g = at::zeros({256}, at::kFloat),
                   m = at::zeros({256}, at::kFloat), v = at::zeros({256}, at::kFloat);
  g.narrow(0, 64, 32).fill_(1.0);
  const ops::AdamWGroup group{.weight_decay = 0.1};
  const auto part = [](const at::Tensor& x) { return x.narrow(0, 64, 128); };
  ops::adamw(Context{}, {.master = part(flat),
                         .grad = part(g),
                         .exp_avg = part(m),
                         .exp_avg_sq = part(v),
                         .numbers = ops::adamw_numbers_tensor({}, ops::adamw_numbers(1, 0.5, 0.9, 0.98, 1)),
                         .group = std::span(&group, 1)});
  for (int64_t i = 0; i < 256; ++i) {
    const bool moved = i >= 64 && i < 96;
    CHECK(values(flat)[i] == (moved ? Approx(-0.5) : Approx(0.0).margin(0)));
  }
}

TEST_CASE("the sum of squares is accumulated in FP64, equal for all thread counts, and shows what is not finite") {
  const at::Tensor x = random_tensor(3, {200001});
  double expected = 0;
  for (const double value : values(x)) expected += value * value;
  at::set_num_threads(2);
  const double two = ops::sum_of_squares(Context{.threads = 2}, {x});
  at::set_num_threads(1);
  CHECK(ops::sum_of_squares(Context{.threads = 1}, {x}) == two);
  CHECK(two == Approx(expected).epsilon(1e-13));
  x.select(0, 100000).fill_(3e38);  // its square is beyond FP32
  CHECK(std::isfinite(ops::sum_of_squares(Context{}, {x})));
  x.select(0, 199999).fill_(std::numeric_limits<double>::infinity());
  CHECK(!std::isfinite(ops::sum_of_squares(Context{}, {x})));
  x.select(0, 199999).fill_(std::nan(""));
  CHECK(!std::isfinite(ops::sum_of_squares(Context{}, {x})));
}

namespace {

/// Of two gradients with these losses, after one earlier update.
kernels::UpdateNumbers decide(const std::vector<at::Tensor>& gradients, kernels::LossSums losses, double max_norm) {
  ops::UpdateControl control(Context{}, gradients);
  control.set_updates(1);
  control.set_lr(0.25);
  control.sum_squares();
  control.decide(at::from_blob(&losses, {3}, at::kDouble), {.max_norm = max_norm, .beta1 = 0.5, .beta2 = 0.75});
  kernels::UpdateNumbers numbers;
  std::memcpy(&numbers, control.numbers().data_ptr(), sizeof numbers);
  CHECK(control.updates() == numbers.adamw.updates);
  return numbers;
}

}  // namespace

TEST_CASE("an update is decided by loss and norm") {
  const std::vector<at::Tensor> gradients{at::full({64}, 3.0f), at::full({128}, -1.0f)};
  const double norm = std::sqrt(64 * 9 + 128) / 50;
  const kernels::LossSums losses{.loss = 100, .scored = 50, .correct = 7};

  SECTION("below the limit, and without one") {
    for (const double limit : {1.0, 0.0}) {
      const kernels::UpdateNumbers got = decide(gradients, losses, limit);
      CHECK(got.clip.losses.correct == 7);
      CHECK(got.clip.grad_norm == Approx(norm).epsilon(1e-14));
      CHECK(got.clip.grad_scale == 1.0f / 50);
      CHECK(got.clip.skip == 0);
      CHECK(got.adamw.skip == 0);
      CHECK(got.adamw.updates == 2);
      CHECK(got.adamw.lr == 0.25);
      CHECK(got.adamw.step_lr == 0.25 / (1 - 0.25));
      CHECK(got.adamw.inv_sqrt_bias2 == Approx(1 / std::sqrt(1 - 0.5625)));
      CHECK(got.adamw.grad_scale == got.clip.grad_scale);
      CHECK(got.first_nonfinite == kernels::kAllFinite);
    }
  }
  SECTION("clipped") {
    const kernels::UpdateNumbers got = decide(gradients, losses, 0.1);
    CHECK(got.clip.grad_norm == Approx(norm).epsilon(1e-14));
    CHECK(got.clip.grad_scale == Approx(0.1 / norm / 50).epsilon(1e-4));
  }
  SECTION("skipped: nothing scored") {
    const kernels::UpdateNumbers got = decide(gradients, {}, 1);
    CHECK((got.clip.skip == 1 && got.adamw.skip == 1 && got.adamw.updates == 1 && got.clip.grad_scale == 0));
  }
  SECTION("skipped: the loss is not finite") {
    const kernels::UpdateNumbers got = decide(gradients, {.loss = INFINITY, .scored = 50}, 1);
    CHECK((got.clip.skip == 1 && got.adamw.updates == 1 && got.first_nonfinite == kernels::kAllFinite));
  }
  SECTION("skipped: a gradient is not finite, and its place is told") {
    gradients[1].select(0, 17).fill_(std::nan(""));
    gradients[1].select(0, 90).fill_(INFINITY);
    const kernels::UpdateNumbers got = decide(gradients, losses, 1);
    CHECK((got.clip.skip == 1 && got.adamw.skip == 1 && got.adamw.updates == 1));
    CHECK(got.first_nonfinite == (uint64_t{1} << kernels::kBufferShift | 17));
  }
}

TEST_CASE("AdamW leaves everything alone in a skipped step") {
  const at::Tensor p = random_tensor(1, {64}), g = random_tensor(2, {64}), m = at::zeros({64}, at::kFloat),
                   v = at::zeros({64}, at::kFloat);
  const std::vector<double> before = values(p);
  const ops::AdamWGroup group{.weight_decay = 0.1};
  ops::adamw(Context{}, {.master = p,
                         .grad = g,
                         .exp_avg = m,
                         .exp_avg_sq = v,
                         .numbers = ops::adamw_numbers_tensor({}, {.updates = 3, .lr = 1, .step_lr = 1, .skip = 1}),
                         .group = std::span(&group, 1)});
  CHECK(values(p) == before);
  CHECK(values(m) == std::vector<double>(64, 0.0));
}

TEST_CASE("the library's version is 2.11") { CHECK(ops::libtorch_version().substr(0, 5) == "2.11."); }

}  // namespace esm::test
