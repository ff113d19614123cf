#include "data/verify.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/prepare.h"
#include "data/shard_folder.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

// Why a shard cannot be used, found by its own checksums; empty: it is sound.
std::string shard_problem(const std::string& path) {
  try {
    ShardFile(path, false).verify_all();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

FileVerdict verdict_of(const std::string& path, const std::string& expected_hash, const std::function<void()>& ask) {
  FileVerdict verdict{path, 0, ""};
  std::error_code error;
  if (!fs::exists(path, error)) {
    verdict.problem = path + " is missing";
    return verdict;
  }
  verdict.bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (path.ends_with(".h5")) verdict.problem = shard_problem(path);
  if (!verdict.problem.empty() || expected_hash.empty()) return verdict;
  try {
    if (hash_file(path, ask) != expected_hash) verdict.problem = path + ": its bytes are not those that were written";
  } catch (const DataError& unreadable) {
    verdict.problem = unreadable.what();
  }
  return verdict;
}

}  // namespace

std::vector<FileVerdict> verify_shards(const std::string& path, const std::function<bool()>& should_stop) {
  const auto ask = [&] {
    if (should_stop && should_stop()) throw PrepareStopped("stopped before all was compared");
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (!fs::exists(path, error)) fail<DataError>("cannot open {}: no such file or folder", path);
    if (!is_hdf5(path))
      fail<DataError>("{} is neither a folder of `esmtrain data prepare` nor a shard: only these have checksums", path);
    return {verdict_of(path, "", ask)};
  }
  const std::string report = (fs::path(path) / kReportJson).string();
  const std::vector<std::string> shards = shard_names(path);
  if (shards.empty() && !fs::exists(report, error))
    fail<DataError>("{} is a folder without shards (shard-00000.h5, ...) of `esmtrain data prepare`", path);

  std::vector<FileVerdict> verdicts;
  std::map<std::string, std::string> expected;  // name -> hash; empty: not known
  for (const std::string& name : shards) expected[name] = "";
  FileVerdict report_verdict = verdict_of(report, "", ask);
  if (report_verdict.problem.empty()) {
    const std::string json = read_text_file(report);
    if (is_sealed(json)) {
      for (const auto& [name, hash] : sealed_checksums(json)) expected[name] = hash;
    } else {
      report_verdict.problem = report + " is damaged, or was made by a version without checksums";
    }
  }
  const bool report_sound = report_verdict.problem.empty();
  verdicts.push_back(std::move(report_verdict));
  for (const auto& [name, hash] : expected) {
    ask();
    FileVerdict verdict = verdict_of((fs::path(path) / name).string(), hash, ask);
    if (report_sound && hash.empty()) verdict.problem = verdict.path + " does not belong to this set";
    verdicts.push_back(std::move(verdict));
  }
  // Without the report, the shards still say which ones belong together.
  if (!report_sound &&
      std::count_if(verdicts.begin(), verdicts.end(), [](const FileVerdict& v) { return !v.problem.empty(); }) == 1) {
    try {
      open_shard_folder(path, false);
    } catch (const DataError& wrong_set) {
      verdicts.push_back({path, 0, wrong_set.what()});
    }
  }
  return verdicts;
}

}  // namespace esm::data
