#include "data/shard_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Also of one that is dead but whose parent has not asked for it yet (which in containers may never happen).
bool is_gone(pid_t process) {
  if (::kill(process, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string stat(std::istreambuf_iterator<char>(file), {});  // "7 (name) Z ..."
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() &&
         (stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X');
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) fail<DataError>("cannot list the folder {}: {}", folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_shard_name(const std::string& name) {
  return name.starts_with("shard-") && name.ends_with(".h5") && name.size() > 9 &&
         std::all_of(name.begin() + 6, name.end() - 3, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string shard_name(int64_t shard) { return fmt::format("shard-{:05}.h5", shard); }

std::string chained_hash(const std::string& set_hash, const std::string& content_hash) {
  return hash_hex(set_hash + content_hash);
}

bool is_hdf5(const std::string& path) {
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) return true;
  std::array<char, 8> head{};
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() && ::pread(file.get(), head.data(), head.size(), 0) == 8 &&
         std::string_view(head.data(), 8) == std::string_view("\x89HDF\r\n\x1a\n", 8);
}

std::vector<std::string> shard_names(const std::string& path) {
  std::vector<std::string> names = names_in(path);
  std::erase_if(names, [](const std::string& name) { return !is_shard_name(name); });
  return names;
}

bool is_shard_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !shard_names(path).empty();
}

bool holds_only_shards(const std::string& path) {
  const auto names = names_in(path);
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return is_shard_name(name) || name == kReportJson || name == kReportText;
  });
}

std::vector<std::shared_ptr<const ShardFile>> open_shard_folder(const std::string& path, bool lazy_checksums) {
  std::vector<std::shared_ptr<const ShardFile>> shards;
  for (const std::string& name : shard_names(path)) {
    const std::string file = fs::path(path) / name;
    auto shard = std::make_shared<const ShardFile>(file, lazy_checksums);
    const int64_t number = std::ssize(shards);
    if (shard->shard() != number)
      fail<DataError>("{}: shard {} is missing (found {} with number {}); {}", path, shard_name(number), name,
                      shard->shard(), kMakeAgain);
    if (shard->previous_hash() != (shards.empty() ? "" : shards.back()->content_hash()))
      fail<DataError>("{}: {} belongs to another data set than the shard before it; {}", path, name, kMakeAgain);
    shards.push_back(std::move(shard));
  }
  if (shards.empty())
    fail<DataError>("{} is a folder without shards (shard-00000.h5, ...) of `esmtrain data prepare`", path);
  if (!shards.back()->last())
    fail<DataError>("{}: the shards after {} are missing; {}", path, shard_name(std::ssize(shards) - 1), kMakeAgain);
  return shards;
}

FolderInProgress::FolderInProgress(const std::string& target, const std::function<bool(const std::string&)>& wanted)
    : target_(without_slashes(target)) {
  if (target_.empty() || fs::path(target_).filename() == "." || fs::path(target_).filename() == ".." || target_ == "/")
    fail<DataError>("'{}' cannot be made as a folder of shards: give the name of a new folder", target);
  make_folders(parent_of(target_));
  const std::string prefix = fmt::format("{}.tmp-{}-", target_, host_name());
  const std::vector<std::string> neighbours = names_in(parent_of(target_));
  for (int n = 0;; ++n) {
    path_ = fmt::format("{}{}-{}", prefix, ::getpid(), n);
    if (::mkdir(path_.c_str(), 0777) == 0) break;
    if (errno != EEXIST) fail<DataError>("cannot make the folder {}: {}", path_, errno_text());
  }
  look_for_leftovers(neighbours, fs::path(prefix).filename(), wanted);
}

FolderInProgress::~FolderInProgress() {
  std::error_code ignored;
  if (!placed_ && !kept_) fs::remove_all(path_, ignored);
}

void FolderInProgress::look_for_leftovers(const std::vector<std::string>& names, const std::string& prefix,
                                          const std::function<bool(const std::string&)>& wanted) {
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    pid_t process = 0;
    const char* const digits = name.data() + prefix.size();
    if (std::from_chars(digits, name.data() + name.size(), process).ec != std::errc{} || process <= 0) continue;
    if (!is_gone(process)) continue;
    const std::string leftover = (fs::path(parent_of(target_)) / name).string();
    // An empty folder is replaced by rename; of two processes that want the same leftover one gets it.
    if (!goes_on_ && wanted(leftover) && ::rename(leftover.c_str(), path_.c_str()) == 0) {
      goes_on_ = true;
      continue;
    }
    std::error_code ignored;
    fs::remove_all(leftover, ignored);
  }
}

bool FolderInProgress::put_in_place(bool replace) {
  sync_folder(path_);
  // An empty folder at the target is replaced by rename itself.
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST)
      fail<DataError>("cannot rename {} to {}: {}", path_, target_, errno_text());
    if (!replace) return false;
    // Both folders change names in two steps: a crash between them leaves the old one beside the target.
    const std::string old = path_ + ".old";
    if (::rename(target_.c_str(), old.c_str()) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0)
      fail<DataError>("cannot replace {}: {}", target_, errno_text());
    std::error_code ignored;
    fs::remove_all(old, ignored);
  }
  placed_ = true;
  sync_folder(parent_of(target_));
  return true;
}

}  // namespace esm::data
