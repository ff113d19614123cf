// Is a prepared folder still what was written?
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace esm::data {

/// What is wrong with one file; `problem` empty: nothing.
struct FileVerdict {
  std::string path;
  int64_t bytes = 0;
  std::string problem;
};

/// Reads every byte of a folder of `data prepare` (or of a single shard) and compares it with its checksums: those of
/// whole files in report.json, which has one of itself, and those inside the shards. One verdict a file, missing ones
/// included, sorted by name; files that do not belong to the set are left out. Goes on after a damaged file.
/// `should_stop` is asked before each file and while one is read; true ends with PrepareStopped. Throws DataError when
/// `path` is neither.
std::vector<FileVerdict> verify_shards(const std::string& path, const std::function<bool()>& should_stop);

}  // namespace esm::data
