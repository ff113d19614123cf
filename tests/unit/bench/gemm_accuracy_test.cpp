#include "bench/gemm_accuracy.h"

#include <cmath>

#include "support/catch.h"

namespace esm::bench {

TEST_CASE("the error of sums: its size, its worst element, and its drift towards zero") {
  const SumError none = sum_error({3, -4}, {3, -4});
  CHECK((none.relative_l2 == 0 && none.worst == 0 && none.toward_zero == 0));
  const SumError cut = sum_error({2.5, -3.5}, {3, -4});
  CHECK(cut.relative_l2 == Approx(std::sqrt(0.5) / 5));
  CHECK(cut.worst == Approx(0.5 / std::sqrt(12.5)));
  CHECK(cut.toward_zero == Approx(1.0 / 7));
  CHECK(sum_error({2.5, -4.5}, {3, -4}).toward_zero == 0);
  CHECK(sum_error({3.5, -4.5}, {3, -4}).toward_zero == Approx(-1.0 / 7));
}

}  // namespace esm::bench
