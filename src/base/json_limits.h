// What JSON of a stranger may look like before a parser sees it.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace esm {

/// Why JSON text of a stranger must not reach the parser, "" when it may: parsed values are copied and printed by
/// recursion, and objects that keep their order search all their members for each new one.
std::string json_excess(std::string_view text, int64_t max_members = INT64_MAX);

/// The integer that a parsed value is, if it is one that fits; the library itself would convert 1e300 or true.
template <class Json>
std::optional<int64_t> json_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.template get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return value.template get<int64_t>();
}

}  // namespace esm
