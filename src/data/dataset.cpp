#include "data/dataset.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/cache_lock.h"
#include "data/hdf5_shards.h"
#include "data/readers.h"
#include "data/shard_folder.h"

namespace esm::data {
namespace fs = std::filesystem;

const ShardFile& Dataset::locate(int64_t& i) const {
  ESM_CHECK(i >= 0 && i < size(), "sequence {} of {}", i, size());
  const auto shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), i) - starts_.begin()) - 1;
  i -= starts_[shard];
  return *shards_[shard];
}

int64_t Dataset::length(int64_t i) const {
  const ShardFile& shard = locate(i);
  return shard.length(i);
}

void Dataset::read(int64_t i, int64_t start, std::span<uint8_t> out) const {
  const ShardFile& shard = locate(i);
  shard.read(i, start, out);
}

std::vector<uint8_t> Dataset::tokens(int64_t i) const {
  std::vector<uint8_t> tokens(static_cast<size_t>(length(i)));
  read(i, 0, tokens);
  return tokens;
}

std::string Dataset::id(int64_t i) const {
  const ShardFile& shard = locate(i);
  return shard.id(i);
}

void Dataset::visit_ids(const std::function<void(int64_t, std::string_view)>& visit) const {
  for (size_t shard = 0; shard < shards_.size(); ++shard)
    shards_[shard]->visit_ids([&](int64_t record, std::string_view id) { visit(starts_[shard] + record, id); });
}

void Dataset::verify_all() const {
  for (const auto& shard : shards_) shard->verify_all();
}

void Dataset::add(std::shared_ptr<const ShardFile> shard) {
  if (starts_.empty()) starts_.push_back(0);
  if (shard->records() == 0) return;
  starts_.push_back(starts_.back() + shard->records());
  residues_ += shard->residues();
  shards_.push_back(std::move(shard));
}

void Dataset::update_fingerprint() {
  Hasher hasher;
  for (const auto& shard : shards_) hasher.update(shard->content_hash());
  fingerprint_ = hasher.hex();
}

Dataset Dataset::concatenate(const std::vector<Dataset>& sets) {
  Dataset all;
  for (const Dataset& set : sets) {
    for (const auto& shard : set.shards_) all.add(shard);
    all.report_text_ += set.report_text_;
  }
  all.update_fingerprint();
  return all;
}

namespace {

// The folder of shards made from sequence files, made now if it is not in the cache. Several processes may ask at once:
// the first takes the lock, the others wait for it. Where the file system knows no locks all of them work, each in a
// folder of its own, and the first to finish wins.
std::string cached_folder(const std::vector<std::string>& files, const DatasetOptions& options) {
  if (options.cache_dir.empty()) fail<DataError>("no folder is given to keep the shards of {} in", files.front());
  PrepareOptions how;
  how.table = options.table;
  how.progress = options.progress;
  how.should_stop = options.should_stop;
  for (const std::string& file : files) {
    format_of(file);
    if (is_stream(file))
      fail<DataError>("{} can be read once only: store it as shards first, with `esmtrain data prepare`",
                      file == kStandardInput ? "standard input" : file);
    const ByteSource opened(file);  // a clear message for what cannot be read, before hashing
  }
  const std::string folder = (fs::path(options.cache_dir) / inputs_hash(files, how)).string();
  // What is not usable may be replaced: the cache is ours (and prepare() looks that it holds nothing of others).
  const auto usable = [&] {
    std::error_code error;
    if (!fs::exists(folder, error)) return false;
    try {
      open_shard_folder(folder, false);
      return true;
    } catch (const DataError& damaged) {
      log::warn("the cached shards are damaged and are made again: {}", damaged.what());
      how.force = true;
      return false;
    }
  };
  if (usable()) return folder;
  make_folders(options.cache_dir);
  const FileDescriptor lock = cache_lock(folder, options.should_stop);
  if (usable()) return folder;
  prepare(files, folder, how);
  return folder;
}

}  // namespace

Dataset open_dataset(const std::vector<std::string>& paths, const DatasetOptions& options) {
  Dataset set;
  const auto add_folder = [&](const std::string& folder) {
    for (auto& shard : open_shard_folder(folder, options.verify == Verify::kLazy)) set.add(std::move(shard));
    const std::string report = (fs::path(folder) / kReportText).string();
    if (fs::exists(report)) set.report_text_ += read_text_file(report);
  };
  std::vector<std::string> files;  // neighbours are prepared together
  const auto flush = [&] {
    if (!files.empty()) add_folder(cached_folder(files, options));
    files.clear();
  };
  for (const std::string& path : expand_paths(paths)) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      if (!is_shard_folder(path))
        fail<DataError>(
            "{} is a folder without shards of `esmtrain data prepare`; for sequence files in it write '{}/*.fasta'",
            path, path);
      flush();
      add_folder(path);
    } else if (is_hdf5(path)) {
      flush();
      set.add(std::make_shared<const ShardFile>(path, options.verify == Verify::kLazy));
    } else {
      files.push_back(path);
    }
  }
  flush();
  if (set.size() == 0) fail<DataError>("no sequences in {}", paths.empty() ? "an empty list of paths" : paths.front());
  set.update_fingerprint();
  if (options.verify == Verify::kOpen) set.verify_all();
  return set;
}

Dataset open_all(const std::map<std::string, std::vector<std::string>>& sets, const DatasetOptions& options) {
  std::vector<Dataset> opened;
  for (const auto& [name, paths] : sets) opened.push_back(open_dataset(paths, options));
  return Dataset::concatenate(opened);
}

}  // namespace esm::data
