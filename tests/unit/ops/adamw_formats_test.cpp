// Low-byte optimizer state: exactness of two halves, statistics of stochastic rounding, one-byte moments.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/adamw.h"
#include "ops/update.h"
#include "ops/weights.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::MasterFormat;
using precision::MomentFormat;
using precision::StateFormats;

constexpr int64_t kScaled = precision::kScaleElements;
constexpr MasterFormat kMasters[] = {MasterFormat::kF32, MasterFormat::kBF16Remainder, MasterFormat::kBF16};
constexpr MomentFormat kMoments[] = {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3};

/// Optimizer state of n parameters that start at `weights`.
struct State {
  StateFormats formats;
  at::Tensor master, compute, remainder, m, v, m_scale, v_scale;

  State(StateFormats formats_, const at::Tensor& weights) : formats(formats_) {
    const int64_t n = weights.numel(), scales = (n + kScaled - 1) / kScaled;
    if (formats.master == MasterFormat::kF32) master = weights.clone();
    if (formats.master == MasterFormat::kBF16Remainder) remainder = at::zeros({n}, ops::kRemainderType);
    compute = at::zeros({n}, at::kBFloat16);
    ops::split_weights(Context{}, weights, compute, remainder);
    const at::ScalarType type = formats.moments == MomentFormat::kF32    ? at::kFloat
                                : formats.moments == MomentFormat::kBF16 ? at::kBFloat16
                                                                         : at::kByte;
    m = at::zeros({n}, type);
    v = at::zeros({n}, type);
    if (formats.moments == MomentFormat::kE4M3) {
      m_scale = at::zeros({scales}, at::kFloat);
      v_scale = at::zeros({scales}, at::kFloat);
    }
  }

  ops::AdamWArgs args(const at::Tensor& grad, int64_t step, uint64_t seed = 5, double lr = 1e-3) const {
    static constexpr ops::AdamWGroup kGroup{.weight_decay = 0.01};
    return {.formats = formats,
            .master = master,
            .compute = compute,
            .remainder = remainder,
            .grad = grad,
            .exp_avg = m,
            .exp_avg_sq = v,
            .exp_avg_scale = m_scale,
            .exp_avg_sq_scale = v_scale,
            .numbers = ops::adamw_numbers_tensor({}, ops::adamw_numbers(step, lr, 0.9, 0.98, 1)),
            .group = std::span(&kGroup, 1),
            .seed = seed};
  }
  void update(const at::Tensor& grad, int64_t step, uint64_t seed = 5, int threads = 1) {
    at::set_num_threads(threads);
    ops::adamw(Context{.threads = threads}, args(grad, step, seed));
  }
  at::Tensor weights() const {
    if (master.defined()) return master;
    const at::Tensor out = at::empty(compute.sizes(), at::kFloat);
    ops::join_weights(Context{}, compute, remainder, out);
    return out;
  }
  std::vector<std::vector<uint8_t>> all() const {
    std::vector<std::vector<uint8_t>> out;
    for (const at::Tensor& x : {master, compute, remainder, m, v, m_scale, v_scale})
      out.push_back(x.defined() ? bytes(x) : std::vector<uint8_t>());
    return out;
  }
};

/// E4M3 by its definition: sign, 4 bits of exponent (bias 7), 3 of mantissa.
double e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}
std::vector<double> decoded(const at::Tensor& codes, const at::Tensor& scales) {
  std::vector<double> out;
  for (int64_t i = 0; i < codes.numel(); ++i)
    out.push_back(e4m3(codes.const_data_ptr<uint8_t>()[i]) *
                  static_cast<double>(scales.const_data_ptr<float>()[i / kScaled]));
  return out;
}

/// Distance of BF16 numbers at x.
double bf16_unit(double x) { return x == 0 ? 0 : std::ldexp(1.0, std::ilogb(x) - 7); }
/// Distance of E4M3 numbers at x, in a group whose greatest magnitude is `top`.
double e4m3_unit(double x, double top) {
  const double scaled = x / top * 448;
  return std::max(scaled == 0 ? 0.0 : std::ldexp(1.0, std::ilogb(scaled) - 3), 0x1p-9) * top / 448;
}

/// Mean of (stored - exact) / unit, in standard errors: of at most half a unit each.
template <class Unit>
double bias(const std::vector<double>& stored, const std::vector<double>& exact, const Unit& unit) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const double u = unit(i);
    if (!(u > 0)) continue;
    sum += (stored[i] - exact[i]) / u;
    ++count;
  }
  return sum / count / (0.5 / std::sqrt(count));
}

double truncated_bf16(double x) {
  return static_cast<double>(std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(x)) & 0xffff0000u));
}

}  // namespace

TEST_CASE("halves of weights: every bit pattern comes back, BF16 is the nearest, a NaN stays one") {
  // 2^32 patterns in steps of a prime, and the neighbourhood of every boundary.
  std::vector<uint32_t> patterns;
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 1009) patterns.push_back(static_cast<uint32_t>(i));
  for (uint32_t high = 0; high < 0x10000; high += 257)
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) patterns.push_back(high << 16 | low);
  for (const uint32_t special : {0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7fffffffu, 0x7f800001u})
    patterns.push_back(special);
  const auto n = static_cast<int64_t>(patterns.size());
  const at::Tensor x = at::empty({n}, at::kFloat), back = at::empty({n}, at::kFloat),
                   high = at::empty({n}, at::kBFloat16), low = at::empty({n}, ops::kRemainderType);
  std::memcpy(x.data_ptr(), patterns.data(), patterns.size() * 4);
  ops::split_weights(Context{}, x, high, low);
  ops::join_weights(Context{}, high, low, back);
  const auto* bits = static_cast<const uint32_t*>(back.const_data_ptr());
  const auto* bf16 = static_cast<const uint16_t*>(high.const_data_ptr());
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float value = std::bit_cast<float>(patterns[i]);
    if (value != value) {
      wrong += !std::isnan(std::bit_cast<float>(bits[i])) || (bf16[i] & 0x7fffu) <= 0x7f80u;
      continue;
    }
    // To nearest, ties away from zero: the magnitude is cut after half a unit was added to it.
    const uint32_t magnitude = (patterns[i] & 0x7fffffffu) + 0x8000u;
    wrong += bits[i] != patterns[i] || bf16[i] != ((magnitude >> 16) | (patterns[i] >> 16 & 0x8000u));
  }
  CHECK(wrong == 0);
}

TEST_CASE("two halves take the very steps of FP32 weights") {
  const auto moments = GENERATE(from_range(std::begin(kMoments), std::end(kMoments)));
  const int64_t n = 128 * 300 + 64;
  const at::Tensor start = random_tensor(1, {n});
  State whole({MasterFormat::kF32, moments}, start), halves({MasterFormat::kBF16Remainder, moments}, start);
  for (int64_t step = 1; step <= 200; ++step) {
    const at::Tensor grad = random_tensor(100 + static_cast<uint64_t>(step), {n});
    whole.update(grad, step);
    halves.update(grad, step);
  }
  CHECK(bytes(whole.master) == bytes(halves.weights()));
  CHECK(bytes(whole.compute) == bytes(halves.compute));
  CHECK(bytes(whole.m) == bytes(halves.m));
  CHECK(bytes(whole.v) == bytes(halves.v));
  CHECK(bytes(whole.master) != bytes(start));
}

TEST_CASE("updates depend on seed, update and element; not on threads or on how the elements are cut") {
  const auto master = GENERATE(from_range(std::begin(kMasters), std::end(kMasters)));
  const auto moments = GENERATE(from_range(std::begin(kMoments), std::end(kMoments)));
  const StateFormats formats{master, moments};
  const int64_t n = 128 * 700, cut = 128 * 251;
  const at::Tensor start = random_tensor(1, {n}), grad = random_tensor(2, {n});
  const auto run = [&](int64_t first_step, uint64_t seed, int threads) {
    State state(formats, start);
    for (int64_t step = first_step; step < first_step + 3; ++step) state.update(grad, step, seed, threads);
    return state.all();
  };
  const auto expected = run(1, 5, 1);
  CHECK(run(1, 5, 2) == expected);
  const bool random = master == MasterFormat::kBF16 || moments != MomentFormat::kF32;
  CHECK((run(1, 6, 1) != expected) == random);

  State parts(formats, start);
  const auto part = [](const at::Tensor& x, int64_t from, int64_t to, int64_t elements = 1) {
    return x.defined() ? x.narrow(0, from / elements, (to - from) / elements) : x;
  };
  for (int64_t step = 1; step <= 3; ++step)
    for (const auto& [from, to] : {std::pair{cut, n}, {int64_t{0}, cut}}) {
      ops::AdamWArgs args = parts.args(grad, step);
      for (at::Tensor* x : {&args.master, &args.compute, &args.remainder, &args.grad, &args.exp_avg, &args.exp_avg_sq})
        *x = part(*x, from, to);
      for (at::Tensor* x : {&args.exp_avg_scale, &args.exp_avg_sq_scale}) *x = part(*x, from, to, kScaled);
      args.random_offset = from;
      ops::adamw(Context{}, args);
    }
  CHECK(parts.all() == expected);
}

TEST_CASE("stochastic rounding has no bias; cutting off would be seen") {
  const int64_t n = 1 << 20;
  const at::Tensor start = random_tensor(1, {n}), grad = random_tensor(2, {n});
  State exact({MasterFormat::kF32, MomentFormat::kF32}, start.to(at::kBFloat16).to(at::kFloat));
  State bf16({MasterFormat::kBF16, MomentFormat::kBF16}, exact.master);
  State coded({MasterFormat::kF32, MomentFormat::kE4M3}, exact.master);
  for (State* state : {&exact, &bf16, &coded}) state->update(grad, 1);
  constexpr double kBound = 5;  // standard errors
  for (const auto& [what, stored, wanted] : {std::tuple{"weights", bf16.compute, exact.master},
                                             {"first moment", bf16.m, exact.m},
                                             {"second moment", bf16.v, exact.v}}) {
    CAPTURE(what);
    const std::vector<double> x = values(wanted);
    const auto unit = [&](size_t i) { return bf16_unit(x[i]); };
    CHECK(std::abs(bias(values(stored), x, unit)) < kBound);
    std::vector<double> cut = x;
    for (double& value : cut) value = truncated_bf16(value);
    // Towards 0, so values of both signs would hide it.
    std::vector<double> magnitude = x, magnitude_cut = cut;
    for (size_t i = 0; i < x.size(); ++i) {
      magnitude[i] = std::abs(x[i]);
      magnitude_cut[i] = std::abs(cut[i]);
    }
    CHECK(std::abs(bias(magnitude_cut, magnitude, unit)) > 100 * kBound);
    std::vector<double> stored_magnitude = values(stored);
    for (double& value : stored_magnitude) value = std::abs(value);
    CHECK(std::abs(bias(stored_magnitude, magnitude, unit)) < kBound);
  }
  const std::vector<double> m = values(exact.m), v = values(exact.v);
  std::vector<double> roots = v, m_top(n / kScaled), root_top(n / kScaled);
  for (int64_t i = 0; i < n; ++i) {
    roots[i] = std::sqrt(v[i]);
    m_top[i / kScaled] = std::max(m_top[i / kScaled], std::abs(m[i]));
    root_top[i / kScaled] = std::max(root_top[i / kScaled], roots[i]);
  }
  const auto m_unit = [&](size_t i) { return e4m3_unit(m[i], m_top[i / kScaled]); };
  CHECK(std::abs(bias(decoded(coded.m, coded.m_scale), m, m_unit)) < kBound);
  // Roots below the smallest code are lifted to it, so they are left out.
  const auto root_unit = [&](size_t i) {
    const double unit = e4m3_unit(roots[i], root_top[i / kScaled]);
    return roots[i] > root_top[i / kScaled] / 448 * 0x1p-8 ? unit : 0;
  };
  CHECK(std::abs(bias(decoded(coded.v, coded.v_scale), roots, root_unit)) < kBound);
}

TEST_CASE("one-byte moments: within a unit of their group, a second moment never vanishes, no gradient gives zeros") {
  const int64_t n = 128 * 64 + 64;
  at::Tensor grad = random_tensor(2, {n});
  float* g = grad.mutable_data_ptr<float>();
  // Magnitudes over eight decades within a group; groups of very different size; elements and a group without gradient.
  for (int64_t i = 0; i < n; ++i) {
    g[i] *= std::pow(10.0f, static_cast<float>(i % 9) - 4) * std::pow(10.0f, static_cast<float>(i / kScaled % 5) - 2);
    if (i % 31 == 0 || i / kScaled == 3) g[i] = 0;
  }
  const at::Tensor start = random_tensor(1, {n});
  State exact({MasterFormat::kF32, MomentFormat::kF32}, start), coded({MasterFormat::kF32, MomentFormat::kE4M3}, start);
  exact.update(grad, 1);
  coded.update(grad, 1);
  const std::vector<double> m = values(exact.m), v = values(exact.v);
  std::vector<double> m_top((n + kScaled - 1) / kScaled), root_top(m_top.size());
  for (int64_t i = 0; i < n; ++i) {
    m_top[i / kScaled] = std::max(m_top[i / kScaled], std::abs(m[i]));
    root_top[i / kScaled] = std::max(root_top[i / kScaled], std::sqrt(v[i]));
  }
  const std::vector<double> m_got = decoded(coded.m, coded.m_scale), root_got = decoded(coded.v, coded.v_scale);
  int64_t outside = 0, vanished = 0, appeared = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (g[i] == 0) {
      appeared += m_got[i] != 0 || root_got[i] != 0;
      continue;
    }
    const double root = std::sqrt(v[i]);
    outside += std::abs(m_got[i] - m[i]) > 1.001 * e4m3_unit(m[i], m_top[i / kScaled]);
    outside += std::abs(root_got[i] - root) > 1.001 * e4m3_unit(root, root_top[i / kScaled]);
    vanished += root_got[i] == 0;
  }
  CHECK(outside == 0);
  CHECK(vanished == 0);
  CHECK(appeared == 0);
  CHECK(bytes(exact.master) == bytes(coded.master));  // the update itself has FP32 moments

  // Without gradient the moments fade, to exact zeros in the end, and nothing becomes NaN.
  const at::Tensor none = at::zeros({n}, at::kFloat);
  for (int64_t step = 2; step <= 12000; ++step) coded.update(none, step);
  for (const double value : decoded(coded.m, coded.m_scale)) appeared += value != 0;
  for (const double value : values(coded.master)) appeared += !std::isfinite(value);
  CHECK(appeared == 0);
}

TEST_CASE("modes lead to the same minimum") {
  // Least squares of 512 weights: where the weights end, and how far around it they still move.
  const auto master = GENERATE(from_range(std::begin(kMasters), std::end(kMasters)));
  const auto moments = GENERATE(from_range(std::begin(kMoments), std::end(kMoments)));
  CAPTURE(static_cast<int>(master), static_cast<int>(moments));
  const int64_t n = 512;
  const std::vector<double> target = values(random_tensor(3, {n}));
  State state({master, moments}, at::zeros({n}, at::kFloat));
  const auto loss = [&] {
    const std::vector<double> w = values(state.weights());
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += (w[i] - target[i]) * (w[i] - target[i]) / static_cast<double>(n);
    return sum;
  };
  const double before = loss();
  const at::Tensor grad = at::empty({n}, at::kFloat);
  for (int64_t step = 1; step <= 3000; ++step) {
    const std::vector<double> w = values(state.weights());
    for (int64_t i = 0; i < n; ++i) grad.mutable_data_ptr<float>()[i] = static_cast<float>(w[i] - target[i]);
    ops::AdamWArgs args = state.args(grad, step, 5, step < 2500 ? 3e-3 : 3e-4);
    const ops::AdamWGroup no_decay;
    args.group = std::span(&no_decay, 1);
    ops::adamw(Context{}, args);
  }
  CHECK(before > 0.8);
  CHECK(loss() < (master == MasterFormat::kBF16 ? 1e-4 : 1e-5));
}

}  // namespace esm::test
