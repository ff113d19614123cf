#include "data/record_counter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "base/units.h"
#include "data/hdf5_shards.h"
#include "data/readers.h"

namespace esm::data {
namespace {

constexpr int64_t kShardTick = 4096;  // records between two calls of tick()

constexpr std::chrono::seconds kProgressInterval{2};

int64_t repeats(std::vector<uint64_t>& hashes) {
  std::sort(hashes.begin(), hashes.end());
  int64_t n = 0;
  for (size_t i = 1; i < hashes.size(); ++i) n += hashes[i] == hashes[i - 1] ? 1 : 0;
  return n;
}

}  // namespace

void SetStatistics::add(std::string_view id, std::span<const uint8_t> tokens) {
  lengths_.push_back(static_cast<uint32_t>(tokens.size()));
  sequence_hashes_.push_back(hash64(std::as_bytes(tokens)));
  if (!id.empty()) id_hashes_.push_back(hash64(std::as_bytes(std::span(id))));
}

LengthStatistics SetStatistics::length_statistics() const {
  std::vector<uint32_t> lengths = lengths_;
  LengthStatistics s;
  s.histogram.assign(kLengthBinEnds.size() + 1, 0);
  if (lengths.empty()) return s;
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
  if (lengths.size() % 2 == 0) s.median = (s.median + *std::max_element(lengths.begin(), middle)) / 2;
  return s;
}

int64_t SetStatistics::repeated_ids() { return repeats(id_hashes_); }
int64_t SetStatistics::repeated_sequences() { return repeats(sequence_hashes_); }

RecordCounter::RecordCounter(const PrepareOptions& options)
    : options_(options), started_(Clock::now()), reported_(started_) {}

std::vector<std::string> RecordCounter::read_files(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (!format_of(file, options_.format).has_columns && !options_.table.split.empty())
      fail<DataError>("{}: only tables (CSV, TSV) have splits; leave --split out", file);
    // Opens it: a wrong name is found before the work begins. A stream can be opened once only.
    if (!is_stream(file)) progress_.bytes_total += ByteSource(file).raw_bytes();
  }
  for (size_t i = file_hashes_.size(); i < files.size(); ++i) {
    const std::string& file = files[i];
    Hasher hasher;
    ByteSource source(file, {[&](std::span<const std::byte> bytes) { hasher.update(bytes); }, [&] { tick(); }});
    source_ = &source;
    const std::string name = file == kStandardInput ? "standard input" : file;
    if (!went_on_) report_.files.push_back({name, 0, 0, 0, 0, ""});
    format_of(file, options_.format).read(source, name, options_.table, *this);
    if (went_on_) fail<DataError>("{} became shorter since it was read last", name);
    source_ = nullptr;
    report_.files.back().bytes = source.raw_bytes_read();
    progress_.bytes_done += source.raw_bytes_read();
    file_hashes_.push_back(hasher.hex());
  }
  return file_hashes_;
}

void RecordCounter::go_on(const PrepareReport& counts, std::vector<std::string> file_hashes,
                          const std::vector<std::shared_ptr<const ShardFile>>& shards) {
  report_ = counts;
  file_hashes_ = std::move(file_hashes);
  for (size_t i = 0; i < file_hashes_.size(); ++i) progress_.bytes_done += report_.files[i].bytes;
  to_pass_ = report_.files.back().records;
  went_on_ = true;
  for (const auto& shard : shards)
    shard->visit_ids([&](int64_t record, std::string_view id) {
      tokens_.resize(static_cast<size_t>(shard->length(record)));
      shard->read(record, 0, tokens_);
      statistics_.add(id, tokens_);
      if (record % kShardTick == 0) tick();
    });
  comments_before_ = report_.comment_lines;
}

PrepareReport RecordCounter::counts_before_record() const {
  PrepareReport counts = report_;
  counts.comment_lines = comments_before_;
  return counts;
}

void RecordCounter::read_shard(const ShardFile& shard) {
  report_.files.push_back({shard.path(), 0, 0, 0, 0, ""});
  for (int64_t i = 0; i < shard.records(); ++i) {
    tokens_.resize(static_cast<size_t>(shard.length(i)));
    shard.read(i, 0, tokens_);
    count(shard.id(i), tokens_);
    if (i % kShardTick == 0) tick();
  }
}

void RecordCounter::begin_record(std::string_view id) {
  passing_ = to_pass_ > 0;
  if (passing_) {
    --to_pass_;
    return;
  }
  if (went_on_) {
    went_on_ = false;
    report_.comment_lines = comments_before_;
    progress_.bytes_before = progress_.bytes_done + source_->raw_bytes_read();
    progress_.records_before = report_.records;
    started_ = Clock::now();
  }
  comments_before_ = report_.comment_lines;
  id_ = id;
  tokens_.clear();
  tokenizer_.begin();
}

void RecordCounter::skip_record(Skip reason) {
  if (to_pass_ > 0) {
    --to_pass_;
    split_.clear();
    return;
  }
  ++report_.records;
  ++report_.files.back().records;
  ++report_.skipped[static_cast<size_t>(reason)];
  split_.clear();
}

void RecordCounter::end_record() {
  if (passing_) {
    split_.clear();
    return;
  }
  tokenizer_.finish(tokens_);
  const int64_t length = std::ssize(tokens_);
  if (length < std::max<int64_t>(1, options_.min_length)) {
    const bool gaps = tokenizer_.repairs()[static_cast<size_t>(Repair::kGap)] > 0;
    skip_record(length > 0 ? Skip::kTooShort : gaps ? Skip::kOnlyGaps : Skip::kEmpty);
    return;
  }
  before_usable(length);
  if (tokenizer_.repaired())
    for (size_t kind = 0; kind < kRepairs; ++kind) {
      const int64_t n = tokenizer_.repairs()[kind];
      report_.repaired_letters[kind] += n;
      report_.repaired_records[kind] += n > 0 ? 1 : 0;
    }
  if (!split_.empty()) ++report_.splits[split_];
  split_.clear();
  count(id_, tokens_);
}

void RecordCounter::refuse_sequence() const {
  fail<DataError>("{}: the sequence '{}' has more than {} residues: this is no protein", report_.files.back().path, id_,
                  with_thousands(kLongestSequence));
}

void RecordCounter::count(std::string_view id, std::span<const uint8_t> tokens) {
  FileReport& file = report_.files.back();
  ++report_.records;
  ++file.records;
  ++report_.usable;
  ++file.usable;
  report_.residues += std::ssize(tokens);
  file.residues += std::ssize(tokens);
  statistics_.add(id, tokens);
  usable(id, tokens);
}

void RecordCounter::tick() {
  if (options_.should_stop && options_.should_stop()) throw PrepareStopped("stopped; nothing was written");
  if (options_.progress && Clock::now() - reported_ >= kProgressInterval) show_progress(false);
}

PrepareReport RecordCounter::finish() {
  report_.lengths = statistics_.length_statistics();
  report_.duplicate_ids = statistics_.repeated_ids();
  report_.duplicate_sequences = statistics_.repeated_sequences();
  ESM_CHECK(report_.usable + report_.skipped_records() == report_.records, "{} usable, {} skipped of {} records",
            report_.usable, report_.skipped_records(), report_.records);
  if (options_.progress) show_progress(true);
  return report_;
}

void RecordCounter::show_progress(bool finished) {
  reported_ = Clock::now();
  PrepareProgress now = progress_;
  if (source_ != nullptr) now.bytes_done += source_->raw_bytes_read();
  now.records = report_.records;
  now.seconds = std::chrono::duration<double>(reported_ - started_).count();
  now.finished = finished;
  options_.progress(now);
}

}  // namespace esm::data
