// The include table as code: reads it, scans a source tree, lists what the table does not allow.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lint {

/// One row of include_table.txt.
struct FolderRule {
  std::vector<std::string> ours;                                 // "src/base", "src/data/batch.h"
  std::vector<std::pair<std::string, std::string>> third_party;  // ("yaml-cpp", "yaml_tree.cpp")
};

using IncludeTable = std::map<std::string, FolderRule>;

/// Throws std::runtime_error for a row that cannot be read.
IncludeTable parse_table(std::string_view text);

/// "src/base/log.cpp:12: includes "config/config.h": src/base may not include src/config", for every C++ and CUDA file
/// below src/, kernels/ and app/ of `root`; also folders that the table does not know.
std::vector<std::string> include_violations(const std::string& root, const IncludeTable& table);

}  // namespace lint
