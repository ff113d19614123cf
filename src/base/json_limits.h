// What JSON of a stranger may look like before a parser sees it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace esm {

/// Why JSON text of a stranger must not reach the parser, "" when it may: parsed values are copied and printed by
/// recursion, and objects that keep their order search all their members for each new one.
std::string json_excess(std::string_view text, int64_t max_members = INT64_MAX);

}  // namespace esm
