// Codes of 8 and 4 bits against their definition in double arithmetic (support/fp8_oracle.h).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/fp8_math.h"
#include "support/catch.h"
#include "support/fp8_oracle.h"

namespace esm::test {
namespace {

using namespace kernels;

struct Coding {
  CodeFormat format;
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);
};

const Coding kCodings[] = {{kE4M3Format, encode_e4m3, decode_e4m3},
                           {kE5M2Format, encode_e5m2, decode_e5m2},
                           {kE2M1Format, encode_e2m1, decode_e2m1}};

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("every code of E4M3, E5M2 and E2M1 is decoded by its definition and survives the way there and back") {
  for (const Coding& coding : kCodings) {
    const CodeFormat& f = coding.format;
    INFO(f.name);
    const uint32_t sign = f.sign();
    int wrong = 0, nans = 0, infinities = 0;
    for (uint32_t code = 0; code < 2 * sign; ++code) {
      const uint32_t magnitude = code & (sign - 1);
      const float x = coding.decode(code);
      nans += std::isnan(x);
      infinities += std::isinf(x);
      if (magnitude >= f.codes) continue;
      const double expected = code_value(f, magnitude) * ((code & sign) != 0 ? -1 : 1);
      wrong += !same(x, static_cast<float>(expected));  // the sign of 0 too
      wrong += coding.encode(x) != code;
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
  for (const Coding& coding : kCodings) {
    const CodeFormat& f = coding.format;
    INFO(f.name);
    const std::vector<double> values = code_values(f);
    int64_t wrong = 0;
    for (uint32_t high = 0; high < 65536; ++high) {
      for (const uint32_t low : {0x0000u, 0x0001u, 0x8000u, 0xffffu}) {
        const float x = std::bit_cast<float>(high << 16 | low);
        wrong += coding.encode(x) != nearest_code(f, values, x);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("halfway between two codes goes to the even one, and its FP32 neighbours to their own side") {
  for (const Coding& coding : kCodings) {
    const CodeFormat& f = coding.format;
    INFO(f.name);
    const std::vector<double> values = code_values(f);
    const uint32_t sign = f.sign();
    int wrong = 0;
    for (uint32_t code = 0; code + 1 < f.codes; ++code) {
      const auto half = static_cast<float>((values[code] + values[code + 1]) / 2);
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      wrong += coding.encode(half) != even;
      wrong += coding.encode(-half) != (even | sign);
      wrong += coding.encode(std::nextafter(half, 0.0f)) != code;
      wrong += coding.encode(std::nextafter(half, kInfinity)) != code + 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("codes saturate, keep NaN and the sign of 0, and take the least FP32 numbers to 0") {
  for (const Coding& coding : kCodings) {
    const CodeFormat& f = coding.format;
    INFO(f.name);
    const uint32_t sign = f.sign(), top = f.codes - 1;
    const auto greatest = static_cast<float>(code_value(f, top));
    for (const float x :
         {greatest, std::nextafter(greatest, kInfinity), greatest * 1.04f, greatest * 2, 3e38f, kInfinity}) {
      CHECK(coding.encode(x) == top);
      CHECK(coding.encode(-x) == (top | sign));
    }
    for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu})
      CHECK(coding.encode(std::bit_cast<float>(nan)) == f.nan);
    CHECK(coding.encode(0.0f) == 0);
    CHECK(coding.encode(-0.0f) == sign);
    CHECK(coding.encode(std::numeric_limits<float>::denorm_min()) == 0);
    CHECK(coding.encode(-std::numeric_limits<float>::denorm_min()) == sign);
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
