// Folders of `data prepare`: opening one as a whole, and putting one in place as a whole.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/hdf5_shards.h"

namespace esm::data {

/// Names inside a prepared folder.
std::string shard_name(int64_t shard);
inline constexpr const char* kReportJson = "report.json";
inline constexpr const char* kReportText = "report.txt";

/// Hash of a set of shards, from that of the set without its last shard and the last one's content_hash.
std::string chained_hash(const std::string& set_hash, const std::string& content_hash);

/// Does the file look like HDF5, by its name or by its first bytes?
bool is_hdf5(const std::string& path);

/// Names of the shards in a folder, in order; empty when there are none. Throws DataError when it cannot be listed.
std::vector<std::string> shard_names(const std::string& path);

/// Is there a folder at `path` with at least one shard in it?
bool is_shard_folder(const std::string& path);

/// All shards in order. Throws DataError when one is missing, damaged, or of another set.
std::vector<std::shared_ptr<const ShardFile>> open_shard_folder(const std::string& path, bool lazy_checksums);

/// A folder that is being made. It has a name of its own beside `target` until put_in_place(); the destructor removes
/// it if that did not happen. Of the leftovers of processes of this host that are gone the constructor takes the first
/// over that is wanted, and removes the others.
class FolderInProgress {
 public:
  /// `wanted`: is the leftover at this path one to go on with? Throws DataError.
  FolderInProgress(const std::string& target, const std::function<bool(const std::string&)>& wanted);
  ~FolderInProgress();
  FolderInProgress(const FolderInProgress&) = delete;
  FolderInProgress& operator=(const FolderInProgress&) = delete;

  const std::string& path() const { return path_; }
  /// Was a leftover taken over?
  bool goes_on() const { return goes_on_; }
  /// The destructor leaves it for a later process.
  void keep() { kept_ = true; }
  /// Renames it to the target. False when something is there already and `replace` is not set. With `replace` what is
  /// there is removed afterwards. Throws DataError.
  bool put_in_place(bool replace);

 private:
  void look_for_leftovers(const std::vector<std::string>& names, const std::string& prefix,
                          const std::function<bool(const std::string&)>& wanted);
  std::string target_, path_;
  bool placed_ = false, kept_ = false, goes_on_ = false;
};

/// Does the folder hold nothing but shards and reports (so that replacing it loses nothing else)?
bool holds_only_shards(const std::string& path);

}  // namespace esm::data
