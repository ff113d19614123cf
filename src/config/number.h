// Numbers as a person writes them in a config or on the command line, and back to text without losing a bit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace esm::config {

/// A finite decimal number: 1, -2.5, .5, 2., +1e-4, 1E6. Nothing for anything else: other bases, leading zeros (007),
/// separators (1_000), nan, inf, and values that a double cannot hold (1e999, 1e-999).
std::optional<double> parse_real(std::string_view text);

/// The same syntax when the value is an integer of 64 bits, exactly: 1e6, 2., 1.5e1; not 1.5, not 1e30.
std::optional<int64_t> parse_integer(std::string_view text);

/// Shortest text that parse_real() turns into the same double. `value` must be finite.
std::string format_real(double value);

/// " (write it without separators)" and the like: what to do about text that should be a number; "" when there is
/// nothing to say.
std::string number_hint(std::string_view text);

}  // namespace esm::config
