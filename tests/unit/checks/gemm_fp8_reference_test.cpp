// The reference and the bounds of FP8 products, tried on sums as Hopper's tensor cores form them.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/philox.h"
#include "checks/gemm_reference.h"
#include "device/fp8_values.h"
#include "device/gemm_fp8.h"
#include "support/catch.h"

namespace esm::checks {
namespace {

using device::Fp8ForwardGemm, device::Fp8WgradGemm, device::GemmDesc, device::GemmScale;

struct Operand {
  std::vector<double> values;
  std::vector<float> scales;
};

/// Rows of k normal values with scales of their own.
Operand operand(DType dtype, GemmScale mode, int64_t rows, int64_t k, uint32_t which) {
  Operand o;
  for (int64_t i = 0; i < device::scale_count(mode, rows, k); ++i)
    o.scales.push_back(
        0.015f + 0.045f * uniform01(philox(5, RandomStream::kSynthetic, static_cast<uint64_t>(i), which + 100).v[0]));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const PhiloxResult random = philox(5, RandomStream::kSynthetic, static_cast<uint64_t>(r * k + i), which);
      const float scale = o.scales[static_cast<size_t>(device::scale_index(mode, rows, k, r, i))];
      const auto value = static_cast<float>(normal_pair(random.v[0], random.v[1])[0]);
      o.values.push_back(device::float_from_fp8(dtype, device::fp8_from_float(dtype, value / scale)));
    }
  return o;
}

/// A sum in 14 bits, 32 products at a time, each addend cut off below 2^-13 of the largest one's power of two; without
/// fast accumulation added up in FP32 every 128 elements. Scales by blocks are applied there, others at the end.
double tensor_core_sum(const GemmDesc& g, const GemmOperands& o, int64_t i, int64_t j) {
  const double *a = o.a.data() + i * g.lda, *b = o.b.data() + j * g.ldb;
  const auto scale = [&](int64_t l) {
    return static_cast<double>(o.scale_a[static_cast<size_t>(device::scale_index(g.scale_a, g.m, g.k, i, l))]) *
           static_cast<double>(o.scale_b[static_cast<size_t>(device::scale_index(g.scale_b, g.n, g.k, j, l))]);
  };
  const auto cut = [](double x, double largest) {
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
    return std::trunc(x / unit) * unit;
  };
  double sum = 0;
  float total = 0;
  for (int64_t l = 0; l < g.k; l += 32) {
    const int64_t end = std::min(l + 32, g.k);
    double largest = std::abs(sum), next = 0;
    for (int64_t p = l; p < end; ++p) largest = std::max(largest, std::abs(a[p] * b[p]));
    if (largest > 0) {
      next = cut(sum, largest);
      for (int64_t p = l; p < end; ++p) next += cut(a[p] * b[p], largest);
      sum = next == 0 ? 0 : cut(next, next);
    }
    if (end < g.k && (g.fast_accumulation || end % 128 != 0)) continue;
    total += static_cast<float>(sum * scale(l));
    sum = 0;
  }
  return total;
}

struct Problem {
  explicit Problem(const GemmDesc& desc) : g(desc) {
    const Operand a = operand(g.a, g.scale_a, g.m, g.k, 1), b = operand(g.b, g.scale_b, g.n, g.k, 2);
    operands = {.a = a.values, .b = b.values, .scale_a = a.scales, .scale_b = b.scales};
  }
  std::vector<double> tensor_core() const {
    std::vector<double> got;
    for (int64_t j = 0; j < g.n; ++j)
      for (int64_t i = 0; i < g.m; ++i) {
        const double sum = tensor_core_sum(g, operands, i, j);
        got.push_back(g.d == DType::kBF16 ? float_from_bf16(bf16_from_float(static_cast<float>(sum))) : sum);
      }
    return got;
  }
  GemmError error_of(const std::vector<double>& got, const GemmDesc& bounds_of) const {
    return gemm_error(got, gemm_reference(g, operands, g.k).d, bounds_of);
  }
  GemmDesc g;
  GemmOperands operands;
};

std::string shown(const GemmError& error, const GemmDesc& g) {
  return fmt::format("{}: worst/bound {:.3f}, relative L2 {:.2e} (at most {:.2e})", text(g), error.worst,
                     error.relative, gemm_relative_bound(g));
}

}  // namespace

TEST_CASE("the GEMM reference takes each FP8 value times its scale") {
  // Ones everywhere: an element is the sum of its scales' products over k.
  Fp8ForwardGemm forward{.tokens = 4, .out = 256, .in = 640};
  const auto element = [&](GemmScale weight, GemmScale x, int64_t i, int64_t j) {
    forward.weight.scale = weight;
    forward.x.scale = x;
    const GemmDesc g = forward.desc();
    GemmOperands o{.a = std::vector<double>(256 * 640, 1.0), .b = std::vector<double>(4 * 640, 1.0)};
    for (int64_t s = 0; s < device::scale_count(weight, 256, 640); ++s) o.scale_a.push_back(static_cast<float>(s + 1));
    for (int64_t s = 0; s < device::scale_count(x, 4, 640); ++s) o.scale_b.push_back(static_cast<float>(s + 1));
    return gemm_reference(g, o, g.k).d[static_cast<size_t>(j * 256 + i)].value;
  };
  CHECK(element(GemmScale::kTensor, GemmScale::kTensor, 3, 1) == 640);
  CHECK(element(GemmScale::kOuterVector, GemmScale::kOuterVector, 9, 2) == 640 * 10 * 3);
  // Row 200: second row of blocks, scales 9..13 (5 blocks of k in 8 places); token 2: scales 3, 7, 11, 15, 19.
  CHECK(element(GemmScale::kBlock128, GemmScale::kVector128, 200, 2) ==
        128 * (9 * 3 + 10 * 7 + 11 * 11 + 12 * 15 + 13 * 19));
  // Of 20 groups: row 200 (8 in its tile of 128, third part of 32 rows) has four in each of five tiles, from byte 2,560
  // on; token 2 likewise from byte 0 on.
  double sum = 0;
  for (int tile = 0; tile < 5; ++tile)
    for (int group = 0; group < 4; ++group)
      sum += 32.0 * (2560 + 512 * tile + 8 * 16 + 2 * 4 + group + 1) * (512 * tile + 2 * 16 + group + 1);
  CHECK(element(GemmScale::kMx32, GemmScale::kMx32, 200, 2) == sum);
}

TEST_CASE("the GEMM reference applies the factor of a product before bias and C") {
  GemmDesc g = device::LinearForwardGemm{.tokens = 1, .out = 1, .in = 2, .bias = true, .residual = true}.desc();
  g.device_factors = true;
  const GemmOperands o{
      .a = {2, 3}, .b = {5, 7}, .scale_a = {}, .scale_b = {}, .alpha = 0.5, .c = {100}, .bias = {1000}};
  CHECK(gemm_reference(g, o, 2).d[0].value == 1115.5);
}

TEST_CASE("the FP8 bounds hold for sums in 14 bits, fast and split, in every mode of scales") {
  for (const auto& [a, b] : {std::pair{GemmScale::kTensor, GemmScale::kTensor},
                             {GemmScale::kOuterVector, GemmScale::kOuterVector},
                             {GemmScale::kVector128, GemmScale::kVector128},
                             {GemmScale::kBlock128, GemmScale::kVector128}})
    for (const DType second : {DType::kF8E4M3, DType::kF8E5M2})
      for (const bool fast : {false, true})
        for (const DType d : {DType::kF32, DType::kBF16})
          for (const int64_t k : {32, 384, 4096}) {
            GemmDesc g = Fp8WgradGemm{.tokens = k,
                                      .out = 24,
                                      .in = 40,
                                      .x_t = {.scale = a},
                                      .dy_t = {second, b},
                                      .fast_accumulation = fast,
                                      .dweight = d,
                                      .accumulate = false}
                             .desc();
            if (!fp8_obstacle(g).empty()) continue;
            const Problem problem(g);
            const GemmError error = problem.error_of(problem.tensor_core(), g);
            INFO(shown(error, g));
            CHECK(within(error, g));
            CHECK(error.relative > 0);
          }
}

TEST_CASE("the bounds of split FP8 sums refuse fast ones where that matters, at K of a whole batch") {
  const GemmDesc fast = Fp8WgradGemm{.tokens = 65536,
                                     .out = 8,
                                     .in = 8,
                                     .dy_t = {.dtype = DType::kF8E5M2},
                                     .fast_accumulation = true,
                                     .accumulate = false}
                            .desc();
  GemmDesc split = fast;
  split.fast_accumulation = false;
  const Problem problem(fast);
  const std::vector<double> sums = problem.tensor_core();
  const GemmError as_fast = problem.error_of(sums, fast), as_split = problem.error_of(sums, split);
  INFO(shown(as_fast, fast) << "; " << shown(as_split, split));
  CHECK(within(as_fast, fast));
  CHECK_FALSE(within(as_split, split));
  const Problem other(split);
  const GemmError error = other.error_of(other.tensor_core(), split);
  INFO(shown(error, split));
  CHECK(within(error, split));
}

TEST_CASE("the FP8 bounds refuse a missing product, a scale in the wrong place, and NaN") {
  for (const bool fast : {false, true})
    for (const DType d : {DType::kF32, DType::kBF16}) {
      Fp8ForwardGemm forward{.tokens = 48,
                             .out = 64,
                             .in = 320,
                             .weight = {.scale = GemmScale::kOuterVector},
                             .x = {.scale = GemmScale::kOuterVector},
                             .fast_accumulation = fast,
                             .y = d};
      const GemmDesc g = forward.desc();
      const Problem problem(g);
      std::vector<double> got = problem.tensor_core();
      CHECK(within(problem.error_of(got, g), g));
      const GemmReference short_of_one = gemm_reference(g, problem.operands, g.k - 1);
      CHECK_FALSE(within(gemm_error(got, short_of_one.d, g), g));
      Problem shifted = problem;
      std::rotate(shifted.operands.scale_b.begin(), shifted.operands.scale_b.begin() + 1,
                  shifted.operands.scale_b.end());
      CHECK_FALSE(within(shifted.error_of(got, g), g));
      got[5] = std::nan("");
      CHECK_FALSE(within(problem.error_of(got, g), g));
    }
}

TEST_CASE("the case table of FP8 GEMMs names every case once, fits FP8, and has all modes") {
  std::vector<std::string> names;
  std::vector<std::pair<GemmScale, GemmScale>> modes;
  bool fast = false, bias = false, in_place = false, separate = false, longest = false;
  for (const cases::GemmCase& c : cases::fp8_gemm_cases()) {
    INFO(c.name);
    device::check(c.desc);
    CHECK(c.desc.in_codes());
    CHECK(c.desc.accumulate == (c.c != cases::GemmC::kNone));
    CHECK(std::find(names.begin(), names.end(), c.name) == names.end());
    names.push_back(c.name);
    const std::pair mode{c.desc.scale_a, c.desc.scale_b};
    if (std::find(modes.begin(), modes.end(), mode) == modes.end()) modes.push_back(mode);
    fast = fast || c.desc.fast_accumulation;
    bias = bias || c.desc.epilogue == device::GemmEpilogue::kBias;
    in_place = in_place || c.c == cases::GemmC::kInPlace;
    separate = separate || c.c == cases::GemmC::kSeparate;
    longest = longest || c.desc.k == 65536;
    const bool small_groups = mode.first == GemmScale::kMx32 || mode.first == GemmScale::kNv16;
    CHECK(device::fp8_device_obstacle(c.desc, 90).empty() == !small_groups);
    CHECK(device::fp8_device_obstacle(c.desc, 100).empty() == (small_groups || mode.first == GemmScale::kTensor));
    CHECK_FALSE(device::fp8_device_obstacle(c.desc, 80).empty());
  }
  CHECK(modes.size() == 7);
  CHECK((fast && bias && in_place && separate && longest));
}

}  // namespace esm::checks
