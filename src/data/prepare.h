// Sequence files -> a folder of shards with a report.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/readers.h"
#include "data/report.h"

namespace esm::data {

struct PrepareProgress {
  int64_t bytes_done = 0;   // of the files as they lie on disk
  int64_t bytes_total = 0;  // 0 when only streams are read: not known
  int64_t records = 0;
  int64_t bytes_before = 0;  // of bytes_done and records: what an earlier, killed call had done
  int64_t records_before = 0;
  double seconds = 0;  // since the start
  bool finished = false;
};
/// "45 % of 1.2 GiB, 3.1M records, 1.2M records/s, 230.0 MiB/s, 3 s left"
std::string progress_text(const PrepareProgress& progress);
/// Called every two seconds, and at the end, from the thread that prepares.
using ProgressCallback = std::function<void(const PrepareProgress&)>;

/// should_stop() said yes. Nothing was left behind, or what a next call goes on from (prepare()).
class PrepareStopped : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return kExitInterrupted; }
};

struct PrepareOptions {
  int64_t min_length = 1;                        // records of fewer residues are skipped (and counted)
  int64_t max_shard_bytes = int64_t{256} << 20;  // residues of a shard, held in memory until it is written
  std::string format{kAutoFormat};               // of all inputs: auto (by name), fasta, csv, tsv
  TableOptions table;                            // for CSV and TSV
  bool force = false;                            // replace an existing folder of shards
  ProgressCallback progress;
  std::function<bool()> should_stop;
};

/// Reads `inputs` (files, patterns, or "-" for standard input) in order and writes `folder`: shard-00000.h5 ...,
/// report.json, report.txt. The folder appears as a whole or not at all: until then it has another name beside it. A
/// call that is killed or stopped leaves that with the complete shards; the next one on the same host with the same
/// files (by path, size and time of change) and settings goes on after the last of them, and the result is the same to
/// the byte. (It reads, but does not look at, what it passes over of the file where it goes on. Not with streams.) When
/// it is there already: nothing is done if it holds just this content (same input bytes and settings;
/// report.already_there is set), it is replaced if `force` and it holds nothing but shards and reports, and otherwise
/// refused; streams cannot be compared, so with them it is refused or replaced. Throws DataError (also when no record
/// is usable) and PrepareStopped.
PrepareReport prepare(const std::vector<std::string>& inputs, const std::string& folder, const PrepareOptions& options);

/// Name of a prepared set: hash of the bytes of `files` and of every setting that changes the result.
std::string inputs_hash(const std::vector<std::string>& files, const PrepareOptions& options);

}  // namespace esm::data
