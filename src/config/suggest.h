// "did you mean": the nearest of the names that exist.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace esm::config {

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

/// Up to three of `candidates` (dotted keys, option names) that `wrong` may have been meant to be, best first. Case and
/// '-' for '_' cost nothing; a right last part in the wrong section counts as near.
std::vector<std::string> suggest(std::string_view wrong, const std::vector<std::string>& candidates);

/// "; did you mean a, b or c?", or "" when there is nothing to suggest.
std::string did_you_mean(const std::vector<std::string>& suggestions);

}  // namespace esm::config
