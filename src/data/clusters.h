// Clusters of a data set's sequences, of which an epoch draws one member each (as UniRef50 -> UniRef90).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/dataset.h"

namespace esm::data {

/// What a table of clusters and a data set have in common.
struct ClusterCounts {
  int64_t rows = 0;              // of the table
  int64_t named_clusters = 0;    // different clusters in it
  int64_t named_members = 0;     // different members in it
  int64_t missing_members = 0;   // of these, not in the data
  int64_t dropped_clusters = 0;  // without any member in the data
  int64_t clustered = 0;         // sequences of the data in a cluster
  int64_t left_out = 0;          // sequences of the data in no cluster
  bool operator==(const ClusterCounts&) const = default;
};

/// Members of each cluster as numbers of sequences; clusters and members are in an order that depends on their names
/// only. Lies in a mapped file of 4 bytes a cluster and a member, so that ranks of one machine share it. A sequence may
/// be in several clusters.
class ClusterIndex {
 public:
  /// Throws DataError when the file is not such an index, damaged, or of another number of `sequences`.
  ClusterIndex(const std::string& path, int64_t sequences);

  int64_t size() const { return std::ssize(starts_) - 1; }
  std::span<const uint32_t> members(int64_t cluster) const {
    const uint32_t begin = starts_[static_cast<size_t>(cluster)], end = starts_[static_cast<size_t>(cluster) + 1];
    return members_.subspan(begin, end - begin);
  }
  std::span<const uint32_t> all_members() const { return members_; }
  const ClusterCounts& counts() const { return counts_; }
  /// Changes with the content.
  const std::string& fingerprint() const { return fingerprint_; }
  /// The counts in words.
  std::string summary() const;

 private:
  MappedFile file_;
  std::span<const uint32_t> starts_;   // [size + 1]
  std::span<const uint32_t> members_;  // sequences
  ClusterCounts counts_;
  std::string fingerprint_;
};

/// Matches the members that `tables` (files or patterns; cluster_table.h) name with the ids of `set`. The index is made
/// once, in options.cache_dir, under a name made of the content of both; several processes may do so at once. Making
/// it takes 16 bytes of memory a row and 16 a sequence. Throws DataError (also when no member is in the data) and
/// PrepareStopped.
std::shared_ptr<const ClusterIndex> open_clusters(const std::vector<std::string>& tables, const Dataset& set,
                                                  const DatasetOptions& options);

}  // namespace esm::data
