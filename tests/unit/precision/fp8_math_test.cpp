// Codes of 8 and 4 bits against their definition in double arithmetic: nothing below shares a line with the header.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/fp8_math.h"
#include "support/catch.h"

namespace esm::test {
namespace {

using namespace kernels;

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  uint32_t codes;  // magnitudes that are finite: 0 .. codes - 1
  uint32_t nan;    // code that NaN becomes
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);
  int total_bits() const { return 1 + exponent_bits + mantissa_bits; }
};

const Format kFormats[] = {{"E4M3", 4, 3, 7, 0x7f, 0x7f, encode_e4m3, decode_e4m3},
                           {"E5M2", 5, 2, 15, 0x7c, 0x7f, encode_e5m2, decode_e5m2},
                           {"E2M1", 2, 1, 1, 0x8, 0x7, encode_e2m1, decode_e2m1}};

/// Value of a finite magnitude code by the definition of the format.
double value_of(const Format& f, uint32_t code) {
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const int mantissa = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
  const int hidden = exponent == 0 ? 0 : 1 << f.mantissa_bits;
  return std::ldexp(hidden + mantissa, std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

/// The nearest code by looking at all of them; of two the even one.
uint32_t nearest(const Format& f, const std::vector<double>& values, float x) {
  const uint32_t sign = std::signbit(x) ? 1u << (f.total_bits() - 1) : 0u;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return f.nan;
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) return sign | (f.codes - 1);
  const auto high = static_cast<uint32_t>(above - values.begin());
  if (*above == magnitude || high == 0) return sign | high;
  const double up = *above - magnitude, down = magnitude - values[high - 1];
  return sign | (up < down || (up == down && high % 2 == 0) ? high : high - 1);
}

std::vector<double> all_values(const Format& f) {
  std::vector<double> values;
  for (uint32_t code = 0; code < f.codes; ++code) values.push_back(value_of(f, code));
  return values;
}

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("every code of E4M3, E5M2 and E2M1 is decoded by its definition and survives the way there and back") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    const uint32_t sign = 1u << (f.total_bits() - 1);
    int wrong = 0, nans = 0, infinities = 0;
    for (uint32_t code = 0; code < 2 * sign; ++code) {
      const uint32_t magnitude = code & (sign - 1);
      const float x = f.decode(code);
      nans += std::isnan(x);
      infinities += std::isinf(x);
      if (magnitude >= f.codes) continue;
      const double expected = value_of(f, magnitude) * ((code & sign) != 0 ? -1 : 1);
      wrong += !same(x, static_cast<float>(expected));  // the sign of 0 too
      wrong += f.encode(x) != code;
    }
    CHECK(wrong == 0);
    const std::string name = f.name;
    CHECK(nans == (name == "E4M3" ? 2 : name == "E5M2" ? 6 : 0));
    CHECK(infinities == (name == "E5M2" ? 2 : 0));
  }
  CHECK(decode_e5m2(0x7c) == kInfinity);
  CHECK(decode_e5m2(0xfc) == -kInfinity);
  CHECK(std::isnan(decode_e4m3(0x7f)));
  CHECK(std::isnan(decode_e4m3(0xff)));
  CHECK(decode_e4m3(0x7e) == kMaxE4M3);
  CHECK(decode_e5m2(0x7b) == kMaxE5M2);
  CHECK(decode_e2m1(0x7) == kMaxE2M1);
}

TEST_CASE("codes are the nearest ones, ties to even, for all high halves of FP32 with four low halves") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    const std::vector<double> values = all_values(f);
    int64_t wrong = 0;
    for (uint32_t high = 0; high < 65536; ++high) {
      for (const uint32_t low : {0x0000u, 0x0001u, 0x8000u, 0xffffu}) {
        const float x = std::bit_cast<float>(high << 16 | low);
        wrong += f.encode(x) != nearest(f, values, x);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("halfway between two codes goes to the even one, and its FP32 neighbours to their own side") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    const std::vector<double> values = all_values(f);
    const uint32_t sign = 1u << (f.total_bits() - 1);
    int wrong = 0;
    for (uint32_t code = 0; code + 1 < f.codes; ++code) {
      const auto half = static_cast<float>((values[code] + values[code + 1]) / 2);
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      wrong += f.encode(half) != even;
      wrong += f.encode(-half) != (even | sign);
      wrong += f.encode(std::nextafter(half, 0.0f)) != code;
      wrong += f.encode(std::nextafter(half, kInfinity)) != code + 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("codes saturate, keep NaN and the sign of 0, and take the least FP32 numbers to 0") {
  for (const Format& f : kFormats) {
    INFO(f.name);
    const uint32_t sign = 1u << (f.total_bits() - 1), top = f.codes - 1;
    const auto greatest = static_cast<float>(value_of(f, top));
    for (const float x :
         {greatest, std::nextafter(greatest, kInfinity), greatest * 1.04f, greatest * 2, 3e38f, kInfinity}) {
      CHECK(f.encode(x) == top);
      CHECK(f.encode(-x) == (top | sign));
    }
    for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu})
      CHECK(f.encode(std::bit_cast<float>(nan)) == f.nan);
    CHECK(f.encode(0.0f) == 0);
    CHECK(f.encode(-0.0f) == sign);
    CHECK(f.encode(std::numeric_limits<float>::denorm_min()) == 0);
    CHECK(f.encode(-std::numeric_limits<float>::denorm_min()) == sign);
  }
}

TEST_CASE("UE8M0 rounds up to a power of two") {
  int wrong = 0;
  for (uint32_t code = 0; code < 255; ++code) {
    const double value = std::ldexp(1.0, static_cast<int>(code) - 127);
    const auto x = static_cast<float>(value);
    wrong += decode_ue8m0(code) != x;
    wrong += encode_ue8m0(x) != code;
    wrong += encode_ue8m0(std::nextafter(x, kInfinity)) != std::min(code + 1, 254u);
    wrong += encode_ue8m0(std::nextafter(x, 0.0f)) != code;
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(decode_ue8m0(255)));
  CHECK(encode_ue8m0(0.0f) == 0);
  CHECK(encode_ue8m0(kInfinity) == 254);
  CHECK(encode_ue8m0(std::numeric_limits<float>::quiet_NaN()) == 255);
}

}  // namespace esm::test
