#include "base/philox.h"

#include <cmath>

#include "support/catch.h"

using namespace esm;

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST_CASE("philox gives the published words") {
  const PhiloxResult zeros = philox4x32(0, 0, 0, 0, 0, 0);
  CHECK(zeros.v[0] == 0x6627e8d5u);
  CHECK(zeros.v[1] == 0xe169c58du);
  CHECK(zeros.v[2] == 0xbc57ac4cu);
  CHECK(zeros.v[3] == 0x9b00dbd8u);
  const PhiloxResult ones = philox4x32(~0u, ~0u, ~0u, ~0u, ~0u, ~0u);
  CHECK(ones.v[0] == 0x408f276du);
  CHECK(ones.v[1] == 0x41c83b0eu);
  CHECK(ones.v[2] == 0xa20bc7c6u);
  CHECK(ones.v[3] == 0x6d5451fdu);
}

TEST_CASE("streams, seeds and positions draw different words") {
  const auto base = philox(1, RandomStream::kMask, 7, 3);
  CHECK(base.v[0] != philox(2, RandomStream::kMask, 7, 3).v[0]);
  CHECK(base.v[0] != philox(1, RandomStream::kCrop, 7, 3).v[0]);
  CHECK(base.v[0] != philox(1, RandomStream::kMask, 7ull << 32, 3).v[0]);
  CHECK(base.v[0] != philox(1, RandomStream::kMask, 7, 4).v[0]);
}

TEST_CASE("uniform and normal draws have the right moments") {
  double sum = 0, sum_normal = 0, sum_square = 0;
  constexpr int kDraws = 20000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const auto r = philox(5, RandomStream::kInit, i);
    const float u = uniform01(r.v[0]);
    REQUIRE(u >= 0.0f);
    REQUIRE(u < 1.0f);
    REQUIRE(uniform_below(r.v[1], 20) < 20);
    sum += u;
    for (const double z : normal_pair(r.v[2], r.v[3])) {
      sum_normal += z;
      sum_square += z * z;
    }
  }
  CHECK(std::abs(sum / kDraws - 0.5) < 0.01);
  CHECK(std::abs(sum_normal / (2 * kDraws)) < 0.02);
  CHECK(std::abs(sum_square / (2 * kDraws) - 1.0) < 0.03);
}
