#include "checks/gemm_reference.h"

#include "base/half.h"
#include "base/philox.h"
#include "support/catch.h"

namespace esm::checks {
namespace {

double bf16(double x) { return float_from_bf16(bf16_from_float(static_cast<float>(x))); }

std::vector<double> normals(int64_t n, double scale, uint32_t which) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxResult r = philox(11, RandomStream::kSynthetic, static_cast<uint64_t>(i), which);
    x.push_back(bf16(scale * normal_pair(r.v[0], r.v[1])[0]));
  }
  return x;
}

/// y = x w^T + bias + c in BF16.
struct Problem {
  Problem() {
    device::LinearForwardGemm forward{.tokens = 128, .out = 240, .in = 320};
    plain = forward.desc();
    forward.bias = forward.residual = true;
    full = forward.desc();
    operands = {.a = normals(240 * 320, 1, 1),
                .b = normals(128 * 320, 1, 2),
                .c = normals(128 * 240, 3, 3),
                .bias = normals(240, 3, 4)};
  }
  std::vector<GemmExpected> sum(int64_t k) const {
    return gemm_reference(plain, {.a = operands.a, .b = operands.b}, k).d;
  }
  GemmError error_of(const std::vector<double>& got) const {
    return gemm_error(got, gemm_reference(full, operands, full.k).d, full.d, full.k);
  }
  device::GemmDesc plain, full;
  GemmOperands operands;
};

}  // namespace

TEST_CASE("the GEMM reference multiplies, adds and sums as gemm_desc.h says") {
  // x = {1, 2; 3, 4; 5, 6} (3 tokens), w = {1, 10; 100, 1000}, row-major.
  const std::vector<double> x{1, 2, 3, 4, 5, 6}, w{1, 10, 100, 1000}, dy{1, 0, 0, 1, 2, 2};
  device::LinearForwardGemm forward{.tokens = 3, .out = 2, .in = 2, .operands = DType::kF32, .y = DType::kF32};
  const auto values = [](const std::vector<GemmExpected>& elements) {
    std::vector<double> result;
    for (const GemmExpected& e : elements) result.push_back(e.value);
    return result;
  };
  CHECK(values(gemm_reference(forward.desc(), {.a = w, .b = x}, 2).d) ==
        std::vector<double>{21, 2100, 43, 4300, 65, 6500});
  forward.bias = forward.residual = true;
  const GemmReference full =
      gemm_reference(forward.desc(), {.a = w, .b = x, .c = {1, 2, 3, 4, 5, 6}, .bias = {-1000, 0.5}}, 2);
  CHECK(values(full.d) == std::vector<double>{-978, 2102.5, -954, 4304.5, -930, 6506.5});
  CHECK(full.d[0].terms == 1022);
  CHECK(full.d[0].before_add == 1022);
  const device::LinearDgradGemm dgrad{.tokens = 3, .out = 2, .in = 2, .operands = DType::kF32, .dx = DType::kF32};
  CHECK(values(gemm_reference(dgrad.desc(), {.a = w, .b = dy}, 2).d) ==
        std::vector<double>{1, 10, 100, 1000, 202, 2020});
  const device::LinearWgradGemm wgrad{.tokens = 3, .out = 2, .in = 2, .operands = DType::kF32, .accumulate = false};
  const GemmReference gradient = gemm_reference(wgrad.desc(), {.a = x, .b = dy}, 3);
  CHECK(values(gradient.d) == std::vector<double>{11, 14, 13, 16});
}

TEST_CASE("the BF16 bounds of a GEMM allow one stored sum and refuse two") {
  const Problem problem;
  struct Rounding {
    const char* name;
    bool allowed;
    double (*result)(double ab, double bias, double c);
  };
  const std::vector<GemmExpected> ab = problem.sum(problem.full.k);
  std::vector<double> got(ab.size());
  for (const Rounding& r :
       {Rounding{"one rounding", true, [](double ab, double b, double c) { return ab + b + c; }},
        {"AB stored", true, [](double ab, double b, double c) { return bf16(ab) + b + c; }},
        {"AB + bias stored", true, [](double ab, double b, double c) { return bf16(ab + b) + c; }},
        {"AB + C stored", true, [](double ab, double b, double c) { return bf16(ab + c) + b; }},
        {"AB and AB + bias stored", false, [](double ab, double b, double c) { return bf16(bf16(ab) + b) + c; }}}) {
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = bf16(r.result(ab[i].value, problem.operands.bias[i % 240], problem.operands.c[i]));
    const GemmError error = problem.error_of(got);
    INFO(r.name << ": worst/bound " << error.worst << ", relative L2 " << error.relative << " (at most "
                << gemm_relative_bound(problem.full) << ")");
    CHECK(within(error, problem.full) == r.allowed);
  }
}

TEST_CASE("the bounds of a GEMM refuse partial sums in BF16, a missing product, and NaN") {
  const Problem problem;
  constexpr int kParts = 8;
  std::vector<double> sums(static_cast<size_t>(128 * 240)), before(sums.size()), got(sums.size());
  for (int part = 1; part <= kParts; ++part) {
    const std::vector<GemmExpected> so_far = problem.sum(problem.full.k * part / kParts);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = bf16(sums[i] + so_far[i].value - before[i]);
      before[i] = so_far[i].value;
    }
  }
  const auto finish = [&](const std::vector<double>& ab) {
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = bf16(ab[i] + problem.operands.bias[i % 240] + problem.operands.c[i]);
    return problem.error_of(got);
  };
  CHECK_FALSE(within(finish(sums), problem.full));
  const std::vector<GemmExpected> missing = problem.sum(problem.full.k - 1);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = missing[i].value;
  CHECK_FALSE(within(finish(sums), problem.full));
  CHECK(within(finish(before), problem.full));
  before[77] = std::nan("");
  CHECK_FALSE(within(finish(before), problem.full));
}

TEST_CASE("the case table of GEMMs names every case once and checks all roles") {
  std::vector<std::string> names;
  bool bias = false, residual = false, in_place = false;
  for (const cases::GemmCase& c : cases::gemm_cases()) {
    device::check(c.desc);
    CHECK(c.desc.accumulate == (c.c != cases::GemmC::kNone));
    CHECK(std::find(names.begin(), names.end(), c.name) == names.end());
    names.push_back(c.name);
    bias = bias || c.desc.epilogue == device::GemmEpilogue::kBias;
    residual = residual || c.c == cases::GemmC::kSeparate;
    in_place = in_place || c.c == cases::GemmC::kInPlace;
  }
  CHECK((bias && residual && in_place));
}

}  // namespace esm::checks
