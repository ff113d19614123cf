// LayerNorm, GELU, rotary positions, casts, row gathering.
#include <cmath>
#include <numbers>

#include "ops/cast.h"
#include "ops/cross_entropy.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/rotary.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

DType dtype_of(at::ScalarType type) { return type == at::kFloat ? DType::kF32 : DType::kBF16; }

double gelu_value(ops::Gelu form, double x) {
  if (form == ops::Gelu::kErf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(ops::Gelu form, double x) {
  if (form == ops::Gelu::kErf)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  const double root = std::sqrt(2 / std::numbers::pi), t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

TEST_CASE("GELU values: at most 2e-7 of max(|x|, 1) from the formula, tails included") {
  const auto form = GENERATE(ops::Gelu::kErf, ops::Gelu::kTanh);
  std::vector<float> xs;
  for (int i = -4000; i <= 4000; ++i) xs.push_back(static_cast<float>(i) * 0.005f);
  for (const float x : {0.0f, -0.0f, 1e-30f, -1e-30f, 100.0f, -100.0f, 3e4f, -3e4f}) xs.push_back(x);
  const int64_t n = static_cast<int64_t>(xs.size());
  const at::Tensor x = at::from_blob(xs.data(), {n}, at::kFloat), y = at::empty({n}, at::kFloat);
  ops::Workspace ws(Context{.threads = 1});
  ops::gelu(ws, form, x, y);
  const at::Tensor dy = at::full({n}, 2.0, at::kFloat), dx = at::empty({n}, at::kFloat),
                   again = at::empty({n}, at::kFloat);
  ops::gelu_backward(ws, form, {.x = x, .dy = dy, .dx = dx, .y = again});
  CHECK(bytes(again) == bytes(y));
  const std::vector<double> actual = values(y), slope = values(dx);
  double worst = 0, worst_slope = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double v = static_cast<double>(xs[i]);
    worst = std::max(worst, std::abs(actual[i] - gelu_value(form, v)) / std::max(1.0, std::abs(v)));
    worst_slope = std::max(worst_slope, std::abs(slope[i] / 2 - gelu_slope(form, v)));
  }
  CHECK(worst < 2e-7);
  CHECK(worst_slope < 1e-6);
  // The exact form and the tanh form differ by up to 4.73e-4 near 2.70: each test above tells them apart.
  CHECK(std::abs(gelu_value(ops::Gelu::kErf, 2.7) - gelu_value(ops::Gelu::kTanh, 2.7)) > 4e-4);
}

TEST_CASE("GELU keeps NaN, and backward may work in place") {
  const at::Tensor x = random_tensor(1, {1001});
  x.select(0, 17).fill_(std::nan(""));
  const at::Tensor y = at::empty({1001}, at::kFloat);
  ops::Workspace ws(Context{.threads = 1});
  ops::gelu(ws, ops::Gelu::kErf, x, y);
  CHECK(std::isnan(values(y)[17]));
  CHECK(!std::isnan(values(y)[18]));
  const at::Tensor dy = random_tensor(2, {1001}), dx = at::empty({1001}, at::kFloat), in_place = dy.clone();
  ops::gelu_backward(ws, ops::Gelu::kErf, {.x = x, .dy = dy, .dx = dx, .y = {}});
  const at::Tensor sums = random_tensor(3, {1, 1001}).view({-1}), sums_before = sums.clone();
  ops::gelu_backward(ws, ops::Gelu::kErf,
                     {.x = x.view({1, 1001}),
                      .dy = in_place.view({1, 1001}),
                      .dx = in_place.view({1, 1001}),
                      .y = y.view({1, 1001}),
                      .dx_sum = sums});
  CHECK(bytes(dx) == bytes(in_place));
  CHECK(bytes(sums) == bytes(sums_before.add(dx)));  // one row: its column sums are itself
}

TEST_CASE("LayerNorm forward and backward") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t rows = GENERATE(1, 257), cols = GENERATE(8, 64, 100);
  ops::Workspace ws(Context{.threads = 2});
  const at::Tensor x = random_tensor(1, {rows, cols}).mul(3).add(5).to(type);
  const at::Tensor w = random_tensor(2, {cols}, type), b = random_tensor(3, {cols}, type);
  const at::Tensor y = at::empty({rows, cols}, type), mean = at::empty({rows}, at::kFloat),
                   rstd = at::empty({rows}, at::kFloat);
  ops::layer_norm(ws, {.x = x, .weight = w, .bias = b, .y = y, .mean = mean, .rstd = rstd, .eps = 1e-5});

  at::Tensor xd = x.to(at::kDouble), wd = w.to(at::kDouble), bd = b.to(at::kDouble);
  for (at::Tensor* leaf : {&xd, &wd, &bd}) leaf->requires_grad_(true);
  const at::Tensor centered = xd.sub(xd.mean(1, true));
  const at::Tensor yd = centered.mul(centered.square().mean(1, true).add(1e-5).rsqrt()).mul(wd).add(bd);
  // Values are 5 +- 3, and dx is what is left after its mean and its part along x are taken off: both cancel.
  const Tolerance tolerance = operation_tolerance(dtype_of(type), 25 * cols);
  check_close("y", values(y), values(yd), tolerance);

  const at::Tensor dy = random_tensor(4, {rows, cols}, type);
  yd.backward(dy.to(at::kDouble));
  const at::Tensor dx = at::empty({rows, cols}, type), dw = at::zeros({cols}, at::kFloat),
                   db = at::zeros({cols}, at::kFloat);
  ops::LayerNormBackward a{.x = x,
                           .weight = w,
                           .bias = b,
                           .mean = mean,
                           .rstd = rstd,
                           .dy = dy,
                           .dx = dx,
                           .y = {},
                           .dweight = dw,
                           .dbias = db};
  ops::layer_norm_backward(ws, a);
  check_close("dx", values(dx), values(xd.grad()), tolerance);
  check_close("dw", values(dw), values(wd.grad()), operation_tolerance(DType::kF32, 25 * rows));
  check_close("db", values(db), values(bd.grad()), operation_tolerance(DType::kF32, rows));

  // Added to a residual gradient, with the forward output written over dy.
  const at::Tensor residual = random_tensor(5, {rows, cols}, type), sum = residual.clone(), again = dy.clone();
  a.dx = sum;
  a.accumulate = true;
  a.dy = again;
  a.y = again;
  a.dx_sum = random_tensor(6, {cols});
  const at::Tensor column_sums = a.dx_sum.to(at::kDouble);
  ops::layer_norm_backward(ws, a);
  check_close("column sums", values(a.dx_sum), values(column_sums.add(sum.to(at::kDouble).sum(0))),
              operation_tolerance(DType::kF32, 4 * rows));
  check_close("dx + residual", values(sum), values(xd.grad().add(residual.to(at::kDouble))), tolerance);
  CHECK(bytes(again) == bytes(y));
}

TEST_CASE("rotary: NeoX pairs turn by position within the segment, v stays, the inverse undoes it") {
  const int64_t heads = 2, head_dim = GENERATE(2, 16, 24), hidden = heads * head_dim;
  const Context context;
  const ops::Pack pack{.tokens = 6,
                       .cu_seqlens = ints({0, 4, 5, 6}),
                       .is_dummy = byte_values({0, 0, 1}),
                       .positions = at::full({6}, -1, at::kInt)};
  ops::pack_positions(context, pack);
  const std::vector<double> positions = values(pack.positions);
  CHECK(positions == std::vector<double>{0, 1, 2, 3, 0, 0});
  const std::vector<float> freq = ops::rotary_inv_freq(head_dim);
  const ops::RotaryTable table = ops::rotary_table(context, 6, freq);
  const at::Tensor qkv = random_tensor(1, {6, 3 * hidden}), turned = qkv.clone();
  ops::Workspace ws(context);
  ops::rotary(ws, pack, table, {.qkv = turned, .heads = heads});
  const std::vector<double> before = values(qkv), after = values(turned);
  std::vector<double> expected = before;
  for (int64_t t = 0; t < 6; ++t)
    for (int64_t v = 0; v < 2 * heads; ++v)
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle =
            positions[t] * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const int64_t first = t * 3 * hidden + v * head_dim + i, second = first + head_dim / 2;
        expected[first] = before[first] * std::cos(angle) - before[second] * std::sin(angle);
        expected[second] = before[second] * std::cos(angle) + before[first] * std::sin(angle);
      }
  check_close("turned", after, expected, {5e-7, 5e-7});
  const at::Tensor sums = at::full({3 * hidden}, 1.0, at::kFloat);
  ops::rotary(ws, pack, table, {.qkv = turned, .heads = heads, .inverse = true, .sums = sums});
  check_close("back", values(turned), before, {5e-7, 5e-7});
  std::vector<double> expected_sums(static_cast<size_t>(3 * hidden), 1.0);
  for (size_t i = 0; i < before.size(); ++i) expected_sums[i % expected_sums.size()] += before[i];
  check_close("sums", values(sums), expected_sums, {2e-6, 2e-6});
}

TEST_CASE("casts round to nearest even and keep NaN and infinity") {
  std::vector<float> xs{1.0f,     1.00390625f, 1.01171875f, -1.00390625f, 3.3895314e38f, 1e-40f,
                        INFINITY, -INFINITY,   NAN,         0.0f,         -0.0f};
  for (int i = 0; i < 4000; ++i) xs.push_back(std::ldexp(1.0f + static_cast<float>(i) / 4001.0f, i % 200 - 100));
  const int64_t n = static_cast<int64_t>(xs.size());
  const at::Tensor x = at::from_blob(xs.data(), {n}, at::kFloat), y = at::empty({n}, at::kBFloat16),
                   z = at::empty({n}, at::kFloat);
  ops::cast(Context{}, x, y);
  ops::cast(Context{}, y, z);
  const std::vector<double> ours = values(z), theirs = values(x.to(at::kBFloat16));
  for (size_t i = 0; i < xs.size(); ++i) {
    CAPTURE(xs[i]);
    CHECK((ours[i] == theirs[i] || (std::isnan(ours[i]) && std::isnan(theirs[i]))));
  }
}

TEST_CASE("rows are gathered and scattered exactly") {
  const at::Tensor x = random_tensor(1, {10, 7}, at::kBFloat16);
  const ops::Rows rows{ints({0, 3, 9}), ints({3})};
  const at::Tensor some = at::empty({3, 7}, at::kBFloat16), back = at::zeros({10, 7}, at::kBFloat16);
  ops::gather_rows(Context{}, x, rows, some);
  ops::scatter_rows(Context{}, some, rows, back);
  for (int64_t r = 0; r < 10; ++r) {
    const bool chosen = r == 0 || r == 3 || r == 9;
    CHECK(bytes(back.select(0, r)) == bytes(chosen ? x.select(0, r) : at::zeros({7}, at::kBFloat16)));
  }
}

}  // namespace esm::test
