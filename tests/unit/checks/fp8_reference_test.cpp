// What the checks of FP8 kernels compare with, on values worked out by hand.
#include "checks/fp8_reference.h"

#include <cmath>

#include "support/catch.h"

using namespace esm;
using checks::fp8_matrix;

namespace {

using Bytes = std::vector<uint8_t>;

}  // namespace

TEST_CASE("a matrix in FP8 lies in both orders", "[checks]") {
  const std::vector<float> x{1, -2, 448, 500, 0x1p-9f, -0.0f};
  const auto e4m3 = fp8_matrix(x, 2, 3, 2, DType::kF8E4M3, 1.0f);
  CHECK(e4m3.rows == Bytes{0x38, 0xc0, 0x7e, 0x7e, 0x01, 0x80});
  CHECK(e4m3.transposed == Bytes{0x38, 0x7e, 0xc0, 0x01, 0x7e, 0x80});
  CHECK(e4m3.amax == 500.0f);
  const auto e5m2 = fp8_matrix(x, 2, 3, 2, DType::kF8E5M2, 2.0f);
  CHECK(e5m2.rows == Bytes{0x40, 0xc4, 0x63, 0x64, 0x1c, 0x80});
}

TEST_CASE("rows that do not count are zero in FP8 and outside amax", "[checks]") {
  const std::vector<float> x{1, -2, 448, INFINITY, 7, 7};
  const auto out = fp8_matrix(x, 2, 3, 1, DType::kF8E4M3, 1.0f);
  CHECK(out.rows == Bytes{0x38, 0xc0, 0x7e, 0, 0, 0});
  CHECK(out.transposed == Bytes{0x38, 0, 0xc0, 0, 0x7e, 0});
  CHECK(out.amax == 448.0f);
}

TEST_CASE("NaN stands above infinity in amax", "[checks]") {
  CHECK(std::isinf(fp8_matrix({1, -INFINITY}, 1, 2, 1, DType::kF8E4M3, 1.0f).amax));
  CHECK(std::isnan(fp8_matrix({NAN, INFINITY}, 1, 2, 1, DType::kF8E4M3, 1.0f).amax));
}

TEST_CASE("each order of a matrix has its own scales in FP8", "[checks]") {
  const auto out = fp8_matrix(
      {1, 1, 1, 1}, 2, 2, 2, DType::kF8E4M3, [](int64_t r, int64_t) { return r == 0 ? 1.0f : 2.0f; },
      [](int64_t, int64_t c) { return c == 0 ? 4.0f : 8.0f; });
  CHECK(out.rows == Bytes{0x38, 0x38, 0x40, 0x40});
  CHECK(out.transposed == Bytes{0x48, 0x48, 0x50, 0x50});
}
