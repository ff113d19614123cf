// A set of tokenised sequences with random access, backed by shards on disk.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/prepare.h"

namespace esm::data {

class ShardFile;

struct DatasetOptions {
  std::string cache_dir;  // where FASTA and tables are kept as shards, and indices of clusters; else not needed
  Verify verify = Verify::kLazy;
  TableOptions table;                 // for CSV and TSV
  ProgressCallback progress;          // called while files are being prepared; may be empty
  std::function<bool()> should_stop;  // true: give up preparing (throws PrepareStopped); may be empty
};

/// Sequences 0 .. size() - 1. Cheap to copy (shares the open files). Reading is thread-safe: tokens come by pread(2)
/// from the shards, so memory holds the length index only (about 4 bytes a sequence).
class Dataset {
 public:
  Dataset() = default;

  int64_t size() const { return starts_.empty() ? 0 : starts_.back(); }
  int64_t residues() const { return residues_; }
  /// Residues of sequence i, without <cls> and <eos>.
  int64_t length(int64_t i) const;
  /// Copies residues start .. start + out.size() - 1 of sequence i as tokens. Throws DataError when the shard cannot be
  /// read or fails its checksum.
  void read(int64_t i, int64_t start, std::span<uint8_t> out) const;
  /// All residues of sequence i.
  std::vector<uint8_t> tokens(int64_t i) const;
  /// First word of the FASTA header, or the id column of a table.
  std::string id(int64_t i) const;
  /// Calls visit(i, id of sequence i) for all in order; much faster than id() for each.
  void visit_ids(const std::function<void(int64_t, std::string_view)>& visit) const;
  /// 32 hexadecimal digits that change with the content: what a checkpoint's data position belongs to.
  const std::string& fingerprint() const { return fingerprint_; }
  /// The data reports in words, one a prepared source; empty for single shard files.
  const std::string& report_text() const { return report_text_; }
  /// Compares every checksum of every shard. Throws DataError.
  void verify_all() const;

  /// The sets one after the other.
  static Dataset concatenate(const std::vector<Dataset>& sets);

 private:
  friend Dataset open_dataset(const std::vector<std::string>& paths, const DatasetOptions& options);
  void add(std::shared_ptr<const ShardFile> shard);
  void update_fingerprint();
  /// Shard that holds sequence i; i becomes the index within it.
  const ShardFile& locate(int64_t& i) const;

  std::vector<std::shared_ptr<const ShardFile>> shards_;
  std::vector<int64_t> starts_;  // [n_shards + 1] first sequence of each shard, then size()
  int64_t residues_ = 0;
  std::string fingerprint_;
  std::string report_text_;
};

/// Opens, in this order and as one set, what `paths` names: folders of `data prepare`, single shards (.h5), FASTA, CSV
/// and TSV files (plain, gzip or zstd), or patterns of files. Files are prepared once into `cache_dir`, under a name
/// made of its content and the settings; several processes may do so at once. Throws DataError.
Dataset open_dataset(const std::vector<std::string>& paths, const DatasetOptions& options);

/// All sets of a `data.train`-like map as one, in the order of their names.
Dataset open_all(const std::map<std::string, std::vector<std::string>>& sets, const DatasetOptions& options);

}  // namespace esm::data
