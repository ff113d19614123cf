#include "checks/report.h"

#include <cmath>

#include "support/catch.h"

namespace esm::checks {

TEST_CASE("a comparison sees planted errors, NaN and single bits") {
  const std::vector<double> want{1, 2, 3, 4};
  const Report::Bound bound = [](size_t) { return 1e-3; };
  Report report;
  CHECK(report.close("good", {1, 2, 3.0009f, 4}, want, bound));
  CHECK_FALSE(report.close("off", {1, 2, 3.0021f, 4}, want, bound));
  CHECK_FALSE(report.close("nan", {1, 2, std::nanf(""), 4}, want, bound));
  CHECK_FALSE(report.close("short", {1, 2, 3}, want, bound));
  CHECK_FALSE(report.close("bound of zero", {1, 2, 3, 4.0001f}, want, [](size_t i) { return i < 3 ? 1.0 : 0.0; }));
  CHECK(report.same<float>("equal", {1, 2}, {1, 2}));
  CHECK_FALSE(report.same<float>("one bit", {1, 2}, {1, std::nextafter(2.0f, 3.0f)}));
  CHECK_FALSE(report.same<float>("longer", {1, 2}, {1, 2, 3}));
  REQUIRE(report.cases().size() == 8);
  CHECK(report.cases()[1].error == Approx(0.0021).margin(1e-6));
  CHECK(report.cases()[1].share_of_bound() == Approx(2.1).margin(1e-3));
  CHECK(report.cases()[5].share_of_bound() == 0);
  CHECK(report.cases()[6].error == 1);
}

TEST_CASE("a group fails by a wrong case, an error, or for want of cases") {
  const Case good{.name = "good", .error = 1, .bound = 2, .relative_l2 = 0, .ok = true};
  const Case tight{.name = "tight", .error = 19, .bound = 20, .relative_l2 = 0, .ok = true};
  const Case nan{.name = "nan", .error = std::nan(""), .bound = 1, .relative_l2 = 0, .ok = false};
  CHECK_FALSE(CheckGroup{}.ok());
  CHECK(CheckGroup{}.worst() == nullptr);
  const CheckGroup two{.name = "two", .cases = {good, tight, good}};
  CHECK(two.ok());
  CHECK(two.worst()->name == "tight");
  const CheckGroup wrong{.name = "wrong", .cases = {good, nan, tight}};
  CHECK_FALSE(wrong.ok());
  CHECK(wrong.wrong() == 1);
  CHECK(wrong.worst()->name == "nan");
  CHECK_FALSE(CheckGroup{.name = "ended early", .cases = {good}, .failure = "an illegal address"}.ok());
}

}  // namespace esm::checks
