// Conversions between integer types that refuse to lose a value.
#pragma once
#include <type_traits>

#include "base/check.h"

namespace esm {

/// narrow<int>(x): static_cast that throws InternalError when the value does not survive.
template <class To, class From>
constexpr To narrow(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || ((result < To{}) != (value < From{})))
    fail<InternalError>("internal error: {} does not fit the integer type it is given to", value);
  return result;
}

/// Smallest multiple of `step` that is >= value; step > 0.
template <class T>
constexpr T round_up(T value, T step) {
  return (value + step - 1) / step * step;
}

}  // namespace esm
