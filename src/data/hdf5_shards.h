// Shards: tokenised sequences in HDF5 files. The only file that knows HDF5 is hdf5_shards.cpp.
//
// Layout, format version 1 (HDF5 1.8 or later reads it; every dataset is contiguous, little-endian, unfiltered):
//   /tokens      uint8  [residues]      ESM-2 ids of all sequences, end to end, without <cls> and <eos>
//   /lengths     uint32 [records]       residues of each sequence
//   /offsets     int64  [records + 1]   where each sequence begins in /tokens; the last one is the total
//   /ids         uint8  [bytes]         names, end to end
//   /id_offsets  int64  [records + 1]   where each name begins in /ids
//   /checksums   uint64 [chunks]        XXH3-64 of every `chunk_bytes` of /tokens
// Root attributes: format "esmtrain-tokens", format_version, records, residues, chunk_bytes, tokenizer, checksums of
// the other datasets (lengths_xxh3, ...), content_hash, and the place in a set of shards: shard, last, previous_hash,
// inputs_hash.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace esm::data {

/// What to do about a damaged shard.
inline constexpr char kMakeAgain[] =
    "copy it again, prepare it again with --force or, where it lies in a cache, delete its folder";

/// A shard in memory, before it is written.
struct ShardContent {
  std::vector<uint8_t> tokens;
  std::vector<uint32_t> lengths;
  std::string ids;
  std::vector<int64_t> id_offsets{0};
  int64_t shard = 0;  // number within its set
  bool last = false;
  std::string previous_hash;  // content_hash of the shard before, empty for the first
  std::string inputs_hash;    // last shard only: hash of the inputs and settings of the set
};

/// Writes `content` to `path` (temporary name, fsync, rename) and returns its content_hash. Throws DataError.
std::string write_shard(const std::string& path, const ShardContent& content);

/// An open shard. Everything in it is checked against the file's real size and against itself before use, so that a
/// damaged or foreign file is refused and never read out of bounds. The file is opened without locks, whatever
/// HDF5_USE_FILE_LOCKING says. After the constructor HDF5 is not used any more: reading is pread(2), thread-safe.
/// Memory: about 4 bytes a sequence.
class ShardFile {
 public:
  /// Throws DataError that names the file, what was wanted and what was found. `lazy_checksums`: read() compares the
  /// checksum of each chunk of tokens when it first touches it.
  ShardFile(const std::string& path, bool lazy_checksums);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t records() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t residues() const { return residues_; }
  int64_t length(int64_t record) const { return lengths_[static_cast<size_t>(record)]; }
  /// Residues start .. start + out.size() - 1 of a record. Throws DataError: unreadable, wrong checksum, or a value
  /// that is no residue token.
  void read(int64_t record, int64_t start, std::span<uint8_t> out) const;
  std::string id(int64_t record) const;
  /// All of them in order, by large reads.
  void visit_ids(const std::function<void(int64_t, std::string_view)>& visit) const;
  /// Every checksum, and the agreement of the datasets. Throws DataError.
  void verify_all() const;

  const std::string& content_hash() const { return content_hash_; }
  const std::string& previous_hash() const { return previous_hash_; }
  const std::string& inputs_hash() const { return inputs_hash_; }
  int64_t shard() const { return shard_; }
  bool last() const { return last_; }

 private:
  struct Extent {
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
  };
  struct Hdf5View;
  void read_layout();
  void read_lengths(const std::string& expected_hash);
  void read_bytes(const Extent& extent, int64_t begin, std::span<std::byte> out) const;
  int64_t offset_of(int64_t record) const;
  void check_chunks(int64_t begin, int64_t end) const;
  void check_chunk(int64_t chunk, std::vector<std::byte>& buffer) const;

  std::string path_;
  FileDescriptor file_;
  int64_t file_bytes_ = 0;
  Extent tokens_, lengths_at_, offsets_, ids_, id_offsets_, checksums_at_;
  std::string offsets_hash_, ids_hash_, id_offsets_hash_;
  int64_t residues_ = 0, chunk_bytes_ = 0, shard_ = 0;
  bool last_ = false;
  std::string content_hash_, previous_hash_, inputs_hash_;
  std::vector<uint32_t> lengths_;
  std::vector<int64_t> block_offsets_;  // where every 64th sequence begins
  std::vector<uint64_t> checksums_;
  struct Touched;
  std::unique_ptr<Touched> touched_;  // chunks whose checksum was compared; null: not asked for
};

/// Version of the HDF5 library in use.
std::string hdf5_version();

}  // namespace esm::data
