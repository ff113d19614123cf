#include <cmath>
#include <limits>

#include "ops/adamw.h"
#include "ops/grad_norm.h"
#include "ops/version.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {

TEST_CASE("AdamW follows PyTorch's formula over several steps") {
  const int64_t n = 20000;
  const double lr = 3e-3, beta1 = 0.9, beta2 = 0.98, eps = 1e-8, decay = 0.1, scale = 0.01;
  const Context context{.threads = 2};
  const at::Tensor p = random_tensor(1, {n}), m = at::zeros({n}, at::kFloat), v = at::zeros({n}, at::kFloat);
  std::vector<double> pd = values(p), md(n, 0.0), vd(n, 0.0);
  for (int64_t step = 1; step <= 5; ++step) {
    const at::Tensor g = random_tensor(10 + static_cast<uint64_t>(step), {n});
    ops::adamw(context, {.master = p,
                         .grad = g,
                         .exp_avg = m,
                         .exp_avg_sq = v,
                         .lr = lr,
                         .beta1 = beta1,
                         .beta2 = beta2,
                         .eps = eps,
                         .weight_decay = decay,
                         .grad_scale = scale,
                         .step = step});
    const std::vector<double> gd = values(g);
    for (int64_t i = 0; i < n; ++i) {
      const double grad = gd[i] * scale, t = static_cast<double>(step);
      pd[i] *= 1 - lr * decay;
      md[i] = beta1 * md[i] + (1 - beta1) * grad;
      vd[i] = beta2 * vd[i] + (1 - beta2) * grad * grad;
      pd[i] -= lr / (1 - std::pow(beta1, t)) * md[i] / (std::sqrt(vd[i]) / std::sqrt(1 - std::pow(beta2, t)) + eps);
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
  const auto part = [](const at::Tensor& x) { return x.narrow(0, 64, 128); };
  ops::adamw(Context{}, {.master = part(flat),
                         .grad = part(g),
                         .exp_avg = part(m),
                         .exp_avg_sq = part(v),
                         .lr = 0.5,
                         .weight_decay = 0.1});
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
  const double two = ops::sum_of_squares(Context{.threads = 2}, x);
  at::set_num_threads(1);
  CHECK(ops::sum_of_squares(Context{.threads = 1}, x) == two);
  CHECK(two == Approx(expected).epsilon(1e-13));
  x.select(0, 100000).fill_(3e38);  // its square is beyond FP32
  CHECK(std::isfinite(ops::sum_of_squares(Context{}, x)));
  x.select(0, 199999).fill_(std::numeric_limits<double>::infinity());
  CHECK(!std::isfinite(ops::sum_of_squares(Context{}, x)));
  x.select(0, 199999).fill_(std::nan(""));
  CHECK(!std::isfinite(ops::sum_of_squares(Context{}, x)));
}

TEST_CASE("the library's version is 2.11") { CHECK(ops::libtorch_version().substr(0, 5) == "2.11."); }

}  // namespace esm::test
