#include "base/json_limits.h"

#include <fmt/core.h>

#include <vector>

namespace esm {

std::string json_excess(std::string_view text, int64_t max_members) {
  constexpr size_t kMaxDepth = 64;
  std::vector<int64_t> members;  // of the open objects and arrays
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (members.size() == kMaxDepth) return fmt::format("nested more than {} deep", kMaxDepth);
      members.push_back(0);
    } else if (!members.empty() && (c == '}' || c == ']')) {
      members.pop_back();
    } else if (!members.empty() && c == ':' && ++members.back() > max_members) {
      return fmt::format("an object of more than {} members", max_members);
    }
  }
  return "";
}

}  // namespace esm
