#include "base/check.h"

#include <cstring>

namespace esm::detail {

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  const char* slash = std::strrchr(file, '/');
  throw InternalError(fmt::format("internal error: {} (check '{}' failed at {}:{}); please report this", message,
                                  expression, slash != nullptr ? slash + 1 : file, line));
}

}  // namespace esm::detail
