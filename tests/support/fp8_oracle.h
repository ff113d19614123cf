// Numbers of 8 and 4 bits by their definition, in double arithmetic and without a thought for speed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace esm::test {

struct CodeFormat {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  uint32_t codes;  // magnitudes that are finite: 0 .. codes - 1
  uint32_t nan;    // code that NaN becomes
  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};

inline constexpr CodeFormat kE4M3Format{"E4M3", 4, 3, 7, 0x7f, 0x7f};
inline constexpr CodeFormat kE5M2Format{"E5M2", 5, 2, 15, 0x7c, 0x7f};
inline constexpr CodeFormat kE2M1Format{"E2M1", 2, 1, 1, 0x8, 0x7};

/// Value of a finite magnitude code.
inline double code_value(const CodeFormat& f, uint32_t code) {
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const int mantissa = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
  const int hidden = exponent == 0 ? 0 : 1 << f.mantissa_bits;
  return std::ldexp(hidden + mantissa, std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

/// Of all finite magnitudes, ascending.
inline std::vector<double> code_values(const CodeFormat& f) {
  std::vector<double> values;
  for (uint32_t code = 0; code < f.codes; ++code) values.push_back(code_value(f, code));
  return values;
}

/// The nearest of them; of two the even one. Beyond the last: the last.
inline uint32_t nearest_code(const CodeFormat& f, const std::vector<double>& values, double x) {
  if (std::isnan(x)) return f.nan;
  const uint32_t sign = std::signbit(x) ? f.sign() : 0u;
  const double magnitude = std::fabs(x);
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) return sign | (f.codes - 1);
  const auto high = static_cast<uint32_t>(above - values.begin());
  if (*above == magnitude || high == 0) return sign | high;
  const double up = *above - magnitude, down = magnitude - values[high - 1];
  return sign | (up < down || (up == down && high % 2 == 0) ? high : high - 1);
}

}  // namespace esm::test
