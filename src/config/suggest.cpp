#include "config/suggest.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <utility>

namespace esm::config {
namespace {

constexpr size_t kMaxSuggestions = 3;
constexpr size_t kMaxLength = 200;  // of a name worth comparing

std::string normalized(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::pair<std::string_view, std::string_view> split_last(std::string_view key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string_view::npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

/// No more than the edit distance, and sooner known: letters that one of the names has more often than the other, each
/// of which costs an edit.
size_t surplus(std::string_view a, std::string_view b) {
  std::array<int, 32> counts{};
  for (const char c : a) ++counts[static_cast<unsigned char>(c) % counts.size()];
  for (const char c : b) --counts[static_cast<unsigned char>(c) % counts.size()];
  int more = 0, fewer = 0;
  for (const int count : counts) {
    more += std::max(count, 0);
    fewer += std::max(-count, 0);
  }
  return static_cast<size_t>(std::max(more, fewer));
}

/// Edit distance, or any number above `limit` as soon as it is clear that it is above: most keys are far from most
/// others.
size_t bounded_distance(std::string_view a, std::string_view b, size_t limit) {
  if (surplus(a, b) > limit) return limit + 1;
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  size_t least_before = 0;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    const size_t least = *std::min_element(row.begin(), row.end());
    if (std::min(least, least_before) > limit) return limit + 1;  // a swap looks back two rows
    least_before = least;
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

/// Cost of having meant `candidate`, or any number above `limit`; both normalized.
double cost(std::string_view wrong, std::string_view candidate, double limit) {
  const auto distance = [&](std::string_view a, std::string_view b) {
    return static_cast<double>(bounded_distance(a, b, static_cast<size_t>(limit) + 1));
  };
  const auto [wrong_section, wrong_last] = split_last(wrong);
  const auto [section, last] = split_last(candidate);
  const double whole = distance(wrong, candidate);
  if (wrong_section == section) return whole;
  // The name may be right, or nearly so, and stand in the wrong section; the nearer section first.
  const double moved = 0.6 + 0.01 * static_cast<double>(edit_distance(wrong_section, section));
  return std::min(whole, distance(wrong_last, last) + moved);
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) { return bounded_distance(a, b, SIZE_MAX); }

std::vector<std::string> suggest(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (wrong.size() > kMaxLength) return {};
  const std::string name = normalized(wrong);
  // About a third of the letters may be wrong, and at least one; a right name in the wrong section costs below 1.7.
  const double limit = 1.7 + 0.2 * static_cast<double>(split_last(name).second.size());
  std::vector<std::pair<double, const std::string*>> ranked;
  for (const std::string& candidate : candidates) {
    const double c = cost(name, normalized(candidate), limit);
    const size_t letters = split_last(candidate).second.size();
    // Nothing of a name left is no likeness.
    const bool shares_letters = c < static_cast<double>(letters);
    if (shares_letters && c <= std::min(limit, 1.7 + 0.2 * static_cast<double>(letters)))
      ranked.emplace_back(c, &candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (const auto& [c, candidate] : ranked) {
    // Once something is very near, far-off names are noise.
    if (result.size() == kMaxSuggestions || c > ranked.front().first + 1.7) break;
    result.push_back(*candidate);
  }
  return result;
}

std::string did_you_mean(const std::vector<std::string>& suggestions) {
  if (suggestions.empty()) return "";
  std::string names = suggestions[0];
  for (size_t i = 1; i < suggestions.size(); ++i)
    names += (i + 1 == suggestions.size() ? " or " : ", ") + suggestions[i];
  return fmt::format("; did you mean {}?", names);
}

}  // namespace esm::config
