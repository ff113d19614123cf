#include "lint/include_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "base/files.h"

namespace lint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t first = part.find_first_not_of(" \t");
    if (first == std::string::npos)
      parts.emplace_back();
    else
      parts.push_back(part.substr(first, part.find_last_not_of(" \t") - first + 1));
  }
  return parts;
}

bool matches(const std::string& pattern, const fs::path& file) {
  const std::string name = file.filename().string();
  return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
}

bool is_source(const fs::path& file) {
  static const std::vector<std::string> kExtensions{".h", ".cpp", ".cu", ".cuh"};
  return std::find(kExtensions.begin(), kExtensions.end(), file.extension()) != kExtensions.end();
}

/// Headers of the C++ library and of POSIX, and fmt.
bool is_free(const std::string& header) {
  static const std::vector<std::string> kPosix{"dlfcn.h",  "fcntl.h",  "glob.h",  "immintrin.h",
                                               "malloc.h", "netdb.h",  "poll.h",  "pthread.h",
                                               "sched.h",  "signal.h", "spawn.h", "unistd.h"};
  if (header.find('.') == std::string::npos) return true;
  return header.starts_with("fmt/") || header.starts_with("sys/") || header.starts_with("netinet/") ||
         std::find(kPosix.begin(), kPosix.end(), header) != kPosix.end();
}

/// "data/batch.h" -> "src/data/batch.h"; headers of kernels/ and app/ keep their name.
std::string path_of_own(const std::string& header) {
  return header.starts_with("kernels/") || header.starts_with("app/") ? header : "src/" + header;
}

/// "" when `file` (below `folder`) may include it, else why not.
std::string complaint(const std::string& folder, const FolderRule& rule, const fs::path& file, bool quoted,
                      const std::string& header) {
  if (quoted) {
    if (header == "version_generated.h" && folder == "app") return "";
    if (header.find('/') == std::string::npos) return "write \"folder/file.h\"";
    const std::string path = path_of_own(header);
    const std::string owner = fs::path(path).parent_path().string();
    const bool allowed =
        owner == folder || std::any_of(rule.ours.begin(), rule.ours.end(),
                                       [&](const std::string& entry) { return entry == owner || entry == path; });
    return allowed ? "" : fmt::format("{} may not include {}", folder, path);
  }
  if (is_free(header)) return "";
  const std::string library = header.substr(0, header.find('/'));
  for (const auto& [name, pattern] : rule.third_party)
    if (name == library && matches(pattern, file)) return "";
  return fmt::format("{} is not a seam of {} for this file", folder, library);
}

}  // namespace

IncludeTable parse_table(std::string_view text) {
  IncludeTable table;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string> cells = split(line + " ", '|');
    if (cells.size() != 3 || cells[0].empty()) throw std::runtime_error("include table: cannot read the row: " + line);
    FolderRule rule;
    for (const std::string& entry : split(cells[1], ' '))
      if (!entry.empty()) rule.ours.push_back(entry);
    for (const std::string& seam : split(cells[2], ';')) {
      if (seam.empty()) continue;
      const std::vector<std::string> sides = split(seam, '=');
      if (sides.size() != 2) throw std::runtime_error("include table: cannot read the seam: " + seam);
      rule.third_party.emplace_back(sides[0], sides[1]);
    }
    if (!table.emplace(cells[0], rule).second) throw std::runtime_error("include table: two rows for " + cells[0]);
  }
  return table;
}

std::vector<std::string> include_violations(const std::string& root, const IncludeTable& table) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*$)");
  std::vector<std::string> found;
  for (const char* top : {"src", "kernels", "app"}) {
    if (!fs::exists(fs::path(root) / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const fs::path file = entry.path().lexically_relative(root);
      const std::string folder = file.parent_path().string();
      const auto rule = table.find(folder);
      if (rule == table.end()) {
        found.push_back(fmt::format("{}: the folder {} is not in the include table", file.string(), folder));
        continue;
      }
      std::istringstream lines(esm::read_text_file(entry.path().string()));
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        std::smatch match;
        if (!std::regex_match(line, match, kInclude)) continue;
        const std::string why = complaint(folder, rule->second, file, match[1] == "\"", match[2]);
        if (!why.empty()) found.push_back(fmt::format("{}:{}: {}: {}", file.string(), number, match[2].str(), why));
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace lint
