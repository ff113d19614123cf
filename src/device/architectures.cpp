#include "device/architectures.h"

#include <charconv>

namespace esm::device {
namespace {

bool entry_covers(std::string_view entry, int capability) {
  int number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc{}) return false;
  const std::string_view suffix = entry.substr(static_cast<size_t>(end - entry.data()));
  const bool same_major = number / 10 == capability / 10 && capability >= number;
  if (suffix.starts_with('a')) return capability == number;
  if (suffix.starts_with('f') || suffix == "-real") return same_major;
  return capability >= number;  // PTX, compiled by the driver
}

}  // namespace

bool has_code_for(std::string_view architectures, int capability) {
  while (!architectures.empty()) {
    const size_t cut = architectures.find_first_of(";,");
    if (entry_covers(architectures.substr(0, cut), capability)) return true;
    if (cut == std::string_view::npos) break;
    architectures.remove_prefix(cut + 1);
  }
  return false;
}

}  // namespace esm::device
