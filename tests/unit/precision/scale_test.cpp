// From amax to scale, against definitions in double arithmetic.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/fp8_scale.h"
#include "support/catch.h"

namespace esm::test {
namespace {

using namespace kernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// By trying: the greatest k within +-126 with amax * 2^k <= greatest * 2^-margin.
int exponent_by_trying(double amax, double greatest, int margin) {
  int k = 126;
  while (k > -126 && std::ldexp(amax, k) > std::ldexp(greatest, -margin)) --k;
  return k;
}

}  // namespace

TEST_CASE("the scale is the greatest power of two that keeps amax in range, over all BF16 amax and their neighbours") {
  int wrong = 0;
  for (const float greatest : {kMaxE4M3, kMaxE5M2, kMaxE2M1}) {
    for (const int margin : {0, 1, 3}) {
      for (uint32_t high = 0; high < 0x7f80; ++high) {
        for (const uint32_t low : {0x0000u, 0x0001u, 0xffffu}) {
          const float amax = std::bit_cast<float>(high << 16 | low);
          if (amax == 0.0f || amax < 0x1p-126f) continue;
          wrong += scale_exponent(amax, greatest, margin) != exponent_by_trying(amax, greatest, margin);
        }
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("amax at the edges: zero, subnormal, on and just above the greatest value") {
  CHECK(scale_exponent(0.0f, kMaxE4M3, 0) == 0);
  CHECK(scale_exponent(0.0f, kMaxE4M3, 5) == 0);
  CHECK(scale_exponent(std::numeric_limits<float>::denorm_min(), kMaxE4M3, 0) == 126);
  CHECK(scale_exponent(448.0f, kMaxE4M3, 0) == 0);
  CHECK(scale_exponent(std::nextafter(448.0f, kInfinity), kMaxE4M3, 0) == -1);
  CHECK(scale_exponent(57344.0f, kMaxE5M2, 0) == 0);
  CHECK(scale_exponent(std::nextafter(57344.0f, kInfinity), kMaxE5M2, 0) == -1);
  CHECK(scale_exponent(448.0f, kMaxE4M3, 2) == -2);
  for (int k = -126; k <= 126; ++k) {
    CHECK(power_of_two(k) == std::ldexp(1.0f, k));
    CHECK(inverse_power(power_of_two(k)) == std::ldexp(1.0f, -k));
  }
}

TEST_CASE("an amax that is not finite keeps the last scale of a tensor, or 1") {
  for (const float amax : {kInfinity, kNan, -kNan}) {
    CHECK(tensor_scale(amax, kMaxE4M3, 0, 8.0f) == 8.0f);
    CHECK(tensor_scale(amax, kMaxE4M3, 0, 0.0f) == 1.0f);
  }
  CHECK(tensor_scale(1.0f, kMaxE4M3, 0, 8.0f) == 256.0f);
  CHECK(tensor_scale(0.0f, kMaxE4M3, 0, 8.0f) == 1.0f);
}

TEST_CASE("infinities survive the scale of a group of theirs") {
  const int e4m3 = scale_exponent(kInfinity, kMaxE4M3, 0), e5m2 = scale_exponent(kInfinity, kMaxE5M2, 0);
  CHECK(decode_e4m3(encode_e4m3(kInfinity * power_of_two(e4m3))) * power_of_two(-e4m3) == kInfinity);
  CHECK(decode_e5m2(encode_e5m2(-kInfinity * power_of_two(e5m2))) * power_of_two(-e5m2) == -kInfinity);
}

TEST_CASE("MX scales are amax / 448 rounded up to a power of two") {
  int wrong = 0;
  for (uint32_t high = 0x0580; high < 0x7f80; ++high) {  // from 2^-116, below which the exponent is held
    for (const uint32_t low : {0x0000u, 0x0001u, 0xffffu}) {
      const float amax = std::bit_cast<float>(high << 16 | low);
      const double ratio = static_cast<double>(amax) / 448;
      const uint32_t code = mx_scale_code(scale_exponent(amax, kMaxE4M3, 0));
      const double scale = static_cast<double>(decode_ue8m0(code));
      wrong += scale < ratio || scale / 2 >= ratio;
    }
  }
  CHECK(wrong == 0);
  CHECK(decode_ue8m0(mx_scale_code(scale_exponent(0.0f, kMaxE4M3, 0))) == 1.0f);
}

TEST_CASE("NVFP4: amax takes the greatest codes, and blocks stay in range of it") {
  CHECK(kMaxNvfp4 == 2688.0f);
  for (const float amax : {2688.0f, 1.0f, 3e-3f, 1e30f, 0.7f}) {
    const float scale = nv_tensor_scale(amax);
    CHECK(static_cast<double>(scale) * static_cast<double>(amax) == Approx(2688.0).epsilon(1e-7));
    CHECK(nv_block_code(amax, scale) == 0x7e);
    CHECK(encode_e2m1(amax * nv_multiplier(0x7e, scale)) == 7);
  }
  CHECK(nv_tensor_scale(0.0f) == 1.0f);
  CHECK(nv_tensor_scale(kInfinity) == 1.0f);
  CHECK(nv_tensor_scale(kNan) == 1.0f);
  CHECK(nv_tensor_scale(std::numeric_limits<float>::denorm_min()) == FLT_MAX);
  CHECK(nv_block_code(0.0f, 1.0f) == 0);
  CHECK(nv_block_code(kInfinity, 1.0f) == 0x7f);
  CHECK(nv_block_code(kNan, 1.0f) == 0x7f);
  CHECK(nv_multiplier(0, 1.0f) == 0.0f);
  CHECK(nv_multiplier(0x38, 3.0f) == 3.0f);  // 0x38: 1
}

TEST_CASE("scales of MX and NVFP4 lie in tiles of 128 rows and 4 groups, each byte once") {
  // A tile of 128 x 4 is cut into four of 32 x 4 which lie side by side, 16 bytes a row of them.
  CHECK(group_scale_index(0, 1, 4) == 1);
  CHECK(group_scale_index(1, 0, 4) == 16);
  CHECK(group_scale_index(32, 0, 4) == 4);
  CHECK(group_scale_index(127, 3, 4) == 511);
  CHECK(group_scale_index(0, 4, 8) == 512);
  CHECK(group_scale_index(128, 0, 8) == 1024);
  CHECK(group_scale_index(128, 0, 5) == 1024);  // 5 groups fill two tiles
  for (const auto& [rows, groups] : {std::pair<int64_t, int64_t>{1, 1}, {128, 4}, {129, 5}, {384, 12}, {300, 17}}) {
    const int64_t padded_rows = (rows + 127) / 128 * 128, padded_groups = (groups + 3) / 4 * 4;
    const int64_t count = group_scale_count(rows, groups);
    CHECK(count == padded_rows * padded_groups);
    std::vector<int> seen(static_cast<size_t>(count));
    int64_t wrong = 0;
    // In the order of the bytes: row of tiles, tile, row of 32, part of 32 rows, group.
    int64_t byte = 0;
    for (int64_t tile_row = 0; tile_row < padded_rows; tile_row += 128)
      for (int64_t tile_group = 0; tile_group < padded_groups; tile_group += 4)
        for (int64_t r = 0; r < 32; ++r)
          for (int64_t part = 0; part < 4; ++part)
            for (int64_t g = 0; g < 4; ++g, ++byte) {
              const int64_t at = group_scale_index(tile_row + 32 * part + r, tile_group + g, groups);
              wrong += at != byte;
              if (at >= 0 && at < count) ++seen[static_cast<size_t>(at)];
            }
    CHECK(wrong == 0);
    CHECK(std::ranges::count(seen, 1) == count);
  }
}

}  // namespace esm::test
