#include "checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/file_system.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
namespace {

// Also when the file system cannot say: whoever opens the checkpoint is told why. Left out, an older one, or none,
// would count as the newest.
bool may_hold_manifest(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kManifestName, error) || error;
}

}  // namespace

std::optional<TemporaryName> parse_temporary_name(std::string_view name) {
  const size_t mark = name.find(kTemporaryMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> step = parse_step_folder_name(name.substr(0, mark));
  const std::string_view rest = name.substr(mark + kTemporaryMark.size());
  const size_t last = rest.rfind('-');
  if (!step.has_value() || last == std::string_view::npos || last == 0) return std::nullopt;
  const size_t middle = rest.rfind('-', last - 1);  // a host name may have dashes
  if (middle == std::string_view::npos) return std::nullopt;
  TemporaryName parsed;
  parsed.step = *step;
  parsed.host = rest.substr(0, middle);
  parsed.nonce = rest.substr(last + 1);
  const std::string_view pid = rest.substr(middle + 1, last - middle - 1);
  const auto [end, error] = std::from_chars(pid.data(), pid.data() + pid.size(), parsed.pid);
  if (error != std::errc() || end != pid.data() + pid.size() || parsed.pid <= 0) return std::nullopt;
  return parsed;
}

std::optional<int64_t> parse_replaced_name(std::string_view name) {
  if (!name.starts_with(kReplacedPrefix)) return std::nullopt;
  return parse_step_folder_name(name.substr(kReplacedPrefix.size()));
}

CheckpointFolder::CheckpointFolder(std::string path, Report report)
    : path_(std::move(path)), report_(std::move(report)) {}

std::string CheckpointFolder::step_path(int64_t step) const {
  return (fs::path(path_) / step_folder_name(step)).string();
}

std::string CheckpointFolder::replaced_path(int64_t step) const {
  return (fs::path(path_) / (std::string(kReplacedPrefix) + step_folder_name(step))).string();
}

std::vector<std::string> CheckpointFolder::names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) fail<CheckpointError>("cannot read the folder {}: {}", path_, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<StepFolder> CheckpointFolder::list() const {
  std::map<int64_t, std::string, std::greater<>> found;
  const std::vector<std::string> all = names();
  const auto add = [&](const std::string& name, std::optional<int64_t> step) {
    const fs::path path = fs::path(path_) / name;
    if (step.has_value() && may_hold_manifest(path)) found.emplace(*step, path.string());
  };
  for (const std::string& name : all) add(name, parse_step_folder_name(name));
  for (const std::string& name : all) add(name, parse_replaced_name(name));
  std::vector<StepFolder> folders;
  for (const auto& [step, path] : found) folders.push_back({.step = step, .path = path});
  return folders;
}

std::optional<OpenCheckpoint> CheckpointFolder::newest_complete() {
  const std::vector<StepFolder> candidates = list();
  std::string first_error;
  for (const StepFolder& candidate : candidates) {
    try {
      return OpenCheckpoint(candidate.path, Verify::kContent);
    } catch (const CheckpointError& e) {
      if (first_error.empty()) first_error = e.what();
      report(fmt::format("{}; looking at the next older checkpoint", e.what()));
    }
  }
  if (!candidates.empty())
    fail<CheckpointError>("{}: none of the {} checkpoints is sound (the newest: {})", path_, candidates.size(),
                          first_error);
  return std::nullopt;
}

std::vector<StoredStep> CheckpointFolder::complete_steps() {
  for (const std::string& name : names()) {
    const std::string path = (fs::path(path_) / name).string();
    const bool own = name.starts_with(kBestName) || name.starts_with(kTrashPrefix) ||
                     name.starts_with(kDamagedPrefix) || parse_replaced_name(name).has_value() ||
                     parse_temporary_name(name).has_value();
    if (!own && !(parse_step_folder_name(name).has_value() && may_hold_manifest(path)))
      report_once(fmt::format("{} is not a checkpoint of ours; it is left alone", path));
  }
  std::vector<StoredStep> complete;
  for (const auto& [step, path] : list()) {
    try {
      const Manifest manifest = read_manifest(path, Verify::kSizes);
      complete.push_back(
          {.step = step, .metric = manifest.metric, .pinned = path_exists(path + "/" + kPinnedName), .path = path});
    } catch (const CheckpointError& e) {
      report_once(fmt::format("{}; it is left alone and does not count as a checkpoint", e.what()));
    }
  }
  return complete;
}

void CheckpointFolder::report(const std::string& line) {
  if (report_)
    report_(line);
  else
    log::warn("{}", line);
}

void CheckpointFolder::report_once(const std::string& line) {
  if (reported_.insert(line).second) report(line);
}

}  // namespace esm::checkpoint
