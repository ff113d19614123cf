// ESM_CHECK and the helpers that throw formatted errors. Cheap to include: fmt/core.h only.
#pragma once
#include <fmt/core.h>

#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace esm {

/// Throws E with a formatted message: fail<DataError>("{}: no records", path).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& message);

// Only a real bool may be checked: a string literal converts to bool and is always true.
template <class T>
constexpr bool require_bool(T value) {
  static_assert(std::is_same_v<T, bool>, "ESM_CHECK takes a bool");
  return value;
}
}  // namespace detail
}  // namespace esm

/// ESM_CHECK(cond, "format", ...): throws InternalError with expression, place and message when cond is false.
/// For invariants of the program; bad input is reported with fail<DataError>(...) and its kin.
#define ESM_CHECK(cond, ...)                                                              \
  do {                                                                                    \
    if (!::esm::detail::require_bool(cond))                                               \
      ::esm::detail::check_failed(#cond, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
