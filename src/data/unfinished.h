// How far a `data prepare` had come that did not end: what the next one needs to go on.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace esm::data {

/// At a border between shards: those before it are complete, the next record of the input belongs to the next shard.
struct Unfinished {
  int64_t shards = 0;
  std::string content_hash;              // of these shards (chained_hash)
  std::vector<std::string> file_hashes;  // of the files that are done
  PrepareReport report;                  // counts so far; its last file is the one with the next record
};

/// Changes with the paths, sizes and times of change of `files`, and with every setting that changes the result.
std::string unfinished_key(const std::vector<std::string>& files, const PrepareOptions& options);

/// Keeps `unfinished` in `folder`, in place of an earlier one. Throws DataError.
void write_unfinished(const std::string& folder, const std::string& key, const Unfinished& unfinished);
/// Nothing when there is none with this key, or when it or a shard that it counts on is damaged.
std::optional<Unfinished> read_unfinished(const std::string& folder, const std::string& key);
/// Leaves only the shards that are complete.
void remove_all_but_shards(const std::string& folder, int64_t shards);

}  // namespace esm::data
