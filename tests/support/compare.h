// Comparing arrays of numbers with an oracle.
#pragma once
#include <fmt/core.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/tolerance.h"

namespace esm::test {

struct Difference {
  double relative_l2 = 0;
  double of_max = 0;
  double max_abs = 0;
};

template <class A, class B>
Difference difference(const A& actual, const B& expected) {
  REQUIRE(std::size(actual) == std::size(expected));
  double error = 0, norm = 0, max_error = 0, max_value = 0;
  for (size_t i = 0; i < std::size(actual); ++i) {
    const double e = static_cast<double>(expected[i]), d = std::abs(static_cast<double>(actual[i]) - e);
    error += d * d;
    norm += e * e;
    max_error = d > max_error || std::isnan(d) ? d : max_error;
    max_value = std::max(max_value, std::abs(e));
  }
  // An expected array of zeros must be met exactly.
  const auto ratio = [](double a, double b) { return a == 0 ? 0.0 : a / b; };
  return {ratio(std::sqrt(error), std::sqrt(norm)), ratio(max_error, max_value), max_error};
}

inline bool within(const Difference& d, const Tolerance& t) {
  return d.relative_l2 <= t.relative_l2 && d.of_max <= t.of_max;  // false for NaN
}

template <class A, class B>
void check_close(const std::string& what, const A& actual, const B& expected, const Tolerance& tolerance) {
  const Difference d = difference(actual, expected);
  INFO(fmt::format("{}: relative L2 {:.3g} (at most {:.3g}), of max {:.3g} (at most {:.3g})", what, d.relative_l2,
                   tolerance.relative_l2, d.of_max, tolerance.of_max));
  CHECK(within(d, tolerance));
}

}  // namespace esm::test
