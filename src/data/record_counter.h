// Records of any reader -> tokens, with everything counted that a report says.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"
#include "data/prepare.h"
#include "data/record_sink.h"
#include "data/report.h"
#include "data/tokenizer.h"

namespace esm::data {

class ShardFile;

/// Lengths and repeats of a set of sequences. Memory: 20 bytes a sequence.
class SetStatistics {
 public:
  void add(std::string_view id, std::span<const uint8_t> tokens);
  const std::vector<uint32_t>& lengths() const { return lengths_; }
  LengthStatistics length_statistics() const;
  /// Records whose id (sequence) an earlier one has; empty ids are not compared. Sorts its tables.
  int64_t repeated_ids();
  int64_t repeated_sequences();

 private:
  std::vector<uint32_t> lengths_;
  std::vector<uint64_t> sequence_hashes_, id_hashes_;
};

/// Residues. A record is refused as soon as it has more, since a small packed file can unfold without end. Far above
/// any protein: titin has 35,213.
inline constexpr int64_t kLongestSequence = int64_t{1} << 26;

/// Tokenises what readers give and passes the usable records on, in order. Shows progress and hears a wish to stop
/// (throws PrepareStopped). usable + skipped = records.
class RecordCounter : public RecordSink {
 public:
  explicit RecordCounter(const PrepareOptions& options);

  /// Reads `files` one after the other (Format::read); returns the hash of the bytes of each.
  /// Throws DataError (also at a record above kLongestSequence) and PrepareStopped.
  std::vector<std::string> read_files(const std::vector<std::string>& files);
  /// The same for the sequences of a shard. Throws DataError when it is damaged.
  void read_shard(const ShardFile& shard);
  /// For the next read_files(): goes on where another counter was when it gave counts_before_record() and
  /// hashes_of_done_files(). `shards`: what it had passed on by then. Throws DataError when one is damaged.
  void go_on(const PrepareReport& counts, std::vector<std::string> file_hashes,
             const std::vector<std::shared_ptr<const ShardFile>>& shards);
  /// Counts so far, with lengths and repeats. No file is being read any more.
  PrepareReport finish();

  void begin_record(std::string_view id) final;
  void sequence(std::string_view piece) final {
    if (passing_) return;
    tokenizer_.append(piece, tokens_);
    if (std::ssize(tokens_) > kLongestSequence) refuse_sequence();
  }
  void end_record() final;
  void skip_record(Skip reason) final;
  void columns(std::string_view taken) final { report_.files.back().columns = taken; }
  void split(std::string_view name) final { split_ = name; }
  void comment_line() final { ++report_.comment_lines; }
  void tick() final;

 protected:
  /// A usable record of so many residues is the next one, and counts for nothing yet.
  virtual void before_usable(int64_t) {}
  /// A record with at least min_length residues; both arguments are valid during the call only.
  virtual void usable(std::string_view id, std::span<const uint8_t> tokens) = 0;
  const SetStatistics& statistics() const { return statistics_; }
  /// In before_usable(): the counts without the present record and what stands inside of it.
  PrepareReport counts_before_record() const;
  const std::vector<std::string>& hashes_of_done_files() const { return file_hashes_; }

 private:
  using Clock = std::chrono::steady_clock;
  void count(std::string_view id, std::span<const uint8_t> tokens);
  void show_progress(bool finished);
  [[noreturn]] void refuse_sequence() const;

  const PrepareOptions& options_;
  PrepareProgress progress_;
  Clock::time_point started_, reported_;
  const ByteSource* source_ = nullptr;
  Tokenizer tokenizer_;
  std::vector<uint8_t> tokens_;  // of the present record
  std::string id_, split_;
  SetStatistics statistics_;
  PrepareReport report_;
  std::vector<std::string> file_hashes_;
  int64_t comments_before_ = 0;  // comment lines before the present record
  int64_t to_pass_ = 0;          // records of the file that another counter has counted already
  bool passing_ = false;         // the present record is one of them
  bool went_on_ = false;         // after go_on(), until the first record that is looked at
};

}  // namespace esm::data
