#include "base/units.h"

#include <fmt/core.h>

#include <cmath>

namespace esm {

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_count(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (std::abs(count) >= 999.5 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  const double size = std::abs(count);
  const int decimals = unit == 0 ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", count, decimals, kUnits[unit]);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto total = static_cast<int64_t>(seconds + 0.5);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {} s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{} h {} min", total / 3600, total % 3600 / 60);
  return fmt::format("{} d {} h", total / 86400, total % 86400 / 3600);
}

std::string with_thousands(int64_t value) {
  std::string digits = fmt::format("{}", value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return value < 0 ? "-" + digits : digits;
}

}  // namespace esm
