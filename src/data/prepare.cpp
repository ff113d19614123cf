#include "data/prepare.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/byte_source.h"
#include "data/readers.h"
#include "data/shard_folder.h"
#include "data/tokenizer.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

std::string combined_hash(const std::vector<std::string>& file_hashes, const PrepareOptions& options) {
  Hasher hasher;
  hasher.update(fmt::format("shards/1 {} min_length={} shard={}", kTokenizerVersion, options.min_length,
                            options.max_shard_bytes));
  for (const std::string& hash : file_hashes) hasher.update(" " + hash);
  return hasher.hex();
}

int64_t repeats(std::vector<uint64_t>& hashes) {
  std::sort(hashes.begin(), hashes.end());
  return hashes.end() - std::unique(hashes.begin(), hashes.end());
}

LengthStatistics statistics_of(std::vector<uint32_t>& lengths) {
  LengthStatistics s;
  s.histogram.assign(kLengthBinEnds.size() + 1, 0);
  for (const uint32_t n : lengths)
    ++s.histogram[static_cast<size_t>(std::lower_bound(kLengthBinEnds.begin(), kLengthBinEnds.end(), n) -
                                      kLengthBinEnds.begin())];
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  s.shortest = *shortest;
  s.longest = *longest;
  const double n = static_cast<double>(lengths.size());
  s.mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / n;
  double squares = 0;
  for (const uint32_t length : lengths) squares += (length - s.mean) * (length - s.mean);
  s.deviation = std::sqrt(squares / n);
  const auto middle = lengths.begin() + std::ssize(lengths) / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  s.median = *middle;
  return s;
}

// Takes records from the readers, tokenises them into a shard in memory, and writes shards as they fill up.
class Collector : public RecordSink {
 public:
  Collector(const std::string& folder, const PrepareOptions& options, PrepareProgress progress)
      : folder_(folder), options_(options), progress_(progress), started_(Clock::now()), reported_(started_) {}

  void begin_file(const std::string& path, const ByteSource& source) {
    source_ = &source;
    report_.files.push_back({path, source.raw_bytes(), 0, 0, 0});
  }
  void end_file() {
    progress_.bytes_done += source_->raw_bytes_read();
    source_ = nullptr;
  }

  void begin_record(std::string_view id) override {
    id_ = id;
    begin_ = shard_.tokens.size();
    tokenizer_.begin();
  }
  void sequence(std::string_view piece) override { tokenizer_.append(piece, shard_.tokens); }
  void end_record() override {
    tokenizer_.finish(shard_.tokens);
    FileReport& file = report_.files.back();
    ++report_.records;
    ++file.records;
    const int64_t length = std::ssize(shard_.tokens) - static_cast<int64_t>(begin_);
    if (length < std::max<int64_t>(1, options_.min_length)) {
      const bool gaps = tokenizer_.repairs()[static_cast<size_t>(Repair::kGap)] > 0;
      const Skip skip = length > 0 ? Skip::kTooShort : gaps ? Skip::kOnlyGaps : Skip::kEmpty;
      ++report_.skipped[static_cast<size_t>(skip)];
      shard_.tokens.resize(begin_);
      return;
    }
    if (length > std::numeric_limits<uint32_t>::max())
      fail<DataError>("{}: the sequence '{}' has {} residues: this is no protein", file.path, id_, length);
    if (std::ssize(shard_.tokens) > options_.max_shard_bytes && begin_ > 0) write_full_shard();
    ++report_.usable;
    ++file.usable;
    report_.residues += length;
    file.residues += length;
    if (tokenizer_.repaired()) count_repairs();
    sequence_hashes_.push_back(hash64(std::as_bytes(std::span(shard_.tokens).subspan(begin_))));
    if (!id_.empty()) id_hashes_.push_back(hash64(std::as_bytes(std::span(id_))));
    lengths_.push_back(static_cast<uint32_t>(length));
    shard_.lengths.push_back(static_cast<uint32_t>(length));
    shard_.ids += id_;
    shard_.id_offsets.push_back(std::ssize(shard_.ids));
  }
  void comment_line() override { ++report_.comment_lines; }
  void tick() override {
    if (options_.should_stop && options_.should_stop()) throw PrepareStopped("stopped; nothing was written");
    if (!options_.progress || Clock::now() - reported_ < std::chrono::milliseconds(500)) return;
    show_progress();
  }

  PrepareReport finish(const std::string& inputs_hash) {
    if (report_.usable > 0) {
      shard_.last = true;
      shard_.inputs_hash = inputs_hash;
      write_shard_file();
      report_.lengths = statistics_of(lengths_);
    }
    report_.inputs_hash = inputs_hash;
    report_.duplicate_ids = repeats(id_hashes_);
    report_.duplicate_sequences = repeats(sequence_hashes_);
    ESM_CHECK(report_.usable + report_.skipped_records() == report_.records, "{} usable, {} skipped of {} records",
              report_.usable, report_.skipped_records(), report_.records);
    if (options_.progress) show_progress();
    return report_;
  }

 private:
  void count_repairs() {
    for (size_t kind = 0; kind < kRepairs; ++kind) {
      const int64_t n = tokenizer_.repairs()[kind];
      report_.repaired_letters[kind] += n;
      report_.repaired_records[kind] += n > 0 ? 1 : 0;
    }
  }

  // All records before the present one go out; the present one begins the next shard.
  void write_full_shard() {
    const std::vector<uint8_t> present(shard_.tokens.begin() + static_cast<std::ptrdiff_t>(begin_),
                                       shard_.tokens.end());
    shard_.tokens.resize(begin_);
    write_shard_file();
    shard_.tokens.assign(present.begin(), present.end());
    begin_ = 0;
  }

  void write_shard_file() {
    shard_.previous_hash = write_shard((fs::path(folder_) / shard_name(shard_.shard)).string(), shard_);
    // The last hash stands for the whole set: each shard's hash is in the next one.
    report_.content_hash = hash_hex(report_.content_hash + shard_.previous_hash);
    report_.shards = ++shard_.shard;
    shard_.tokens.clear();
    shard_.lengths.clear();
    shard_.ids.clear();
    shard_.id_offsets.assign(1, 0);
  }

  void show_progress() {
    reported_ = Clock::now();
    PrepareProgress now = progress_;
    if (source_ != nullptr) now.bytes_done += source_->raw_bytes_read();
    now.records = report_.records;
    now.seconds = std::chrono::duration<double>(reported_ - started_).count();
    options_.progress(now);
  }

  const std::string& folder_;
  const PrepareOptions& options_;
  PrepareProgress progress_;
  Clock::time_point started_, reported_;
  const ByteSource* source_ = nullptr;
  Tokenizer tokenizer_;
  ShardContent shard_;
  std::string id_;
  size_t begin_ = 0;  // of the present record in the shard
  std::vector<uint32_t> lengths_;
  std::vector<uint64_t> sequence_hashes_, id_hashes_;
  PrepareReport report_;
};

// The report when `folder` holds just what these inputs and settings give.
bool holds_same(const std::string& folder, const std::string& hash) {
  try {
    return is_shard_folder(folder) && open_shard_folder(folder, false).back()->inputs_hash() == hash;
  } catch (const DataError&) {
    return false;  // damaged: not the same
  }
}

}  // namespace

std::string inputs_hash(const std::vector<std::string>& files, const PrepareOptions& options) {
  std::vector<std::string> hashes;
  for (const std::string& file : files) hashes.push_back(hash_file(file));
  return combined_hash(hashes, options);
}

PrepareReport prepare(const std::vector<std::string>& inputs, const std::string& folder,
                      const PrepareOptions& options) {
  const std::vector<std::string> files = expand_paths(inputs);
  if (files.empty()) fail<DataError>("no input files were given");
  PrepareProgress progress;
  for (const std::string& file : files) {
    reader_for(file);
    // Opens it: a wrong name is found before the work begins. A pipe can be opened once only.
    std::error_code error;
    if (!fs::is_fifo(file, error)) progress.bytes_total += ByteSource(file).raw_bytes();
  }
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    fail<DataError>("{} exists and is not a folder", folder);
  if (fs::is_directory(folder, error) && !fs::is_empty(folder, error)) {
    if (const std::string hash = inputs_hash(files, options); holds_same(folder, hash)) {
      PrepareReport report;
      report.already_there = true;
      report.inputs_hash = hash;
      return report;
    }
    if (!holds_only_shards(folder))
      fail<DataError>("{} exists and holds other things than shards: give the name of a new folder", folder);
    if (!options.force)
      fail<DataError>("{} exists and holds other data. Give another folder, or --force to replace it", folder);
  }

  FolderInProgress output(folder);
  Collector collector(output.path(), options, progress);
  std::vector<std::string> hashes;
  for (const std::string& file : files) {
    Hasher hasher;
    ByteSource source(file, [&](std::span<const std::byte> bytes) { hasher.update(bytes); });
    collector.begin_file(file, source);
    reader_for(file)(source, file, collector);
    collector.end_file();
    hashes.push_back(hasher.hex());
  }
  PrepareReport report = collector.finish(combined_hash(hashes, options));
  if (report.usable == 0)
    fail<DataError>("no usable sequence in {}{}: {} records, all skipped for want of residues. Is this protein FASTA?",
                    files.front(), files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "",
                    report.records);
  write_file_atomically((fs::path(output.path()) / kReportJson).string(), to_json(report));
  write_file_atomically((fs::path(output.path()) / kReportText).string(), to_text(report));
  if (!output.put_in_place(options.force)) {
    if (!holds_same(folder, report.inputs_hash))
      fail<DataError>("{} was made by another process with other content", folder);
    report.already_there = true;
  }
  return report;
}

}  // namespace esm::data
