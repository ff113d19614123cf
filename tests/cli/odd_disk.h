// Programs on a disk that is full at an exact byte, slow, or unable to swap folders (tests/cli/preload/odd_disk.cpp).
#pragma once
#include <fmt/core.h>

#include <string>

#include "tests/cli/training.h"

namespace esm::test {

/// Adds to `options` a disk under every path that holds `path`. setting: "BYTES", "SYNC", "MS" or "NO_SWAP".
inline ProcessOptions on_odd_disk(ProcessOptions options, const std::string& path, const std::string& setting,
                                  int64_t value) {
  options.env.insert(options.env.end(), {{"LD_PRELOAD", ESM_ODD_DISK},
                                         {"ESM_TEST_DISK_PATH", path},
                                         {"ESM_TEST_DISK_" + setting, fmt::format("{}", value)},
                                         {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  return options;
}

/// Names in `folder` that hold `part`.
inline std::vector<std::string> names_with(const std::string& folder, const std::string& part) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); name.find(part) != std::string::npos)
      names.push_back(name);
  return names;
}

inline int64_t lines_with(const std::string& text, const std::string& part) {
  int64_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos;
  return count;
}

}  // namespace esm::test
