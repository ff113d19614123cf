#include "config/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "base/check.h"

namespace esm::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number taken apart: sign, digits before and after the point, power of ten.
struct Decimal {
  bool negative = false;
  std::string_view whole;
  std::string_view fraction;
  int64_t exponent = 0;
};

std::string_view take_digits(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  const std::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

std::optional<Decimal> split(std::string_view text) {
  Decimal result;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    result.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  result.whole = take_digits(text);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    result.fraction = take_digits(text);
  }
  if (result.whole.empty() && result.fraction.empty()) return std::nullopt;
  if (result.whole.size() > 1 && result.whole[0] == '0') return std::nullopt;  // octal in YAML 1.1, decimal in 1.2
  if (text.empty()) return result;

  if (text[0] != 'e' && text[0] != 'E') return std::nullopt;
  text.remove_prefix(1);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.exponent);
  // Far beyond any double; also keeps the arithmetic on exponents below free of overflow.
  if (error != std::errc() || end != text.data() + text.size() || std::abs(result.exponent) > 100'000)
    return std::nullopt;
  return result;
}

}  // namespace

std::optional<double> parse_real(std::string_view text) {
  if (!split(text)) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  const std::optional<Decimal> number = split(text);
  if (!number) return std::nullopt;
  // value = digits * 10^exponent, in exact decimal arithmetic.
  std::string digits = std::string(number->whole) + std::string(number->fraction);
  int64_t exponent = number->exponent - static_cast<int64_t>(number->fraction.size());
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  while (exponent < 0 && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  constexpr size_t kMaxDigits = 19;  // of a 64-bit integer
  if (exponent < 0 || digits.size() + static_cast<size_t>(exponent) > kMaxDigits) return std::nullopt;
  digits.append(static_cast<size_t>(exponent), '0');
  if (number->negative) digits.insert(0, 1, '-');
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string format_real(double value) {
  ESM_CHECK(std::isfinite(value), "a config value is {}", value);
  char buffer[32];
  // Shortest digits in either form; the plain one where people would write it so.
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e12);
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value,
                                          plain ? std::chars_format::fixed : std::chars_format::scientific);
  ESM_CHECK(error == std::errc(), "to_chars failed");
  std::string text(buffer, end);
  if (const size_t zero = text.find_first_not_of("+-", text.find('e') + 1); !plain && text[zero] == '0')
    text.erase(zero, 1);  // 1e-05
  return text;
}

std::string number_hint(std::string_view text) {
  std::string plain(text);
  std::erase_if(plain, [](char c) { return c == '_' || c == ',' || c == '\''; });
  if (plain.size() != text.size() && parse_real(plain)) return fmt::format(" (write {}, without separators)", plain);
  const size_t nonzero = plain.find_first_not_of('0');
  if (nonzero != 0 && nonzero != std::string::npos && parse_real(plain.substr(nonzero)))
    return " (leading zeros mean octal to some YAML readers)";
  if (const auto decimal = split(text); decimal && !parse_real(text)) return " (beyond the range of a double)";
  return "";
}

}  // namespace esm::config
