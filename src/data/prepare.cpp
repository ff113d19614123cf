#include "data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "data/readers.h"
#include "data/record_counter.h"
#include "data/shard_folder.h"
#include "data/tokenizer.h"
#include "data/unfinished.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

// Only what changes the result: the names of FASTA files do not, those of tables say how they are read.
std::string combined_hash(const std::vector<std::string>& files, const std::vector<std::string>& file_hashes,
                          const PrepareOptions& options) {
  Hasher hasher;
  hasher.update(fmt::format("shards/1 {} min_length={} shard={}", kTokenizerVersion, options.min_length,
                            options.max_shard_bytes));
  bool tables = false;
  for (size_t i = 0; i < files.size(); ++i) {
    const Format& format = format_of(files[i], options.format);
    tables |= format.has_columns;
    hasher.update(" " + (format.has_columns ? std::string(format.name) + ":" : "") + file_hashes[i]);
  }
  const TableOptions& t = options.table;
  for (const std::string& setting : {t.sequence_column, t.id_column, t.target_column, t.split})
    if (tables) hasher.update(fmt::format(" {}:{}", setting.size(), setting));
  return hasher.hex();
}

constexpr int64_t kMostReserved = int64_t{1} << 30;  // memory that is not touched costs nothing

// Writes usable records into shards as they fill up; after each of them a later process can go on.
class ShardWriter : public RecordCounter {
 public:
  /// `key`: of what is unfinished; empty: nobody can go on.
  ShardWriter(const std::string& folder, const PrepareOptions& options, const std::string& key)
      : RecordCounter(options), folder_(folder), key_(key), max_shard_bytes_(options.max_shard_bytes) {
    shard_.tokens.reserve(static_cast<size_t>(std::min(max_shard_bytes_, kMostReserved)));
  }

  void go_on(const Unfinished& unfinished) {
    std::vector<std::shared_ptr<const ShardFile>> shards;
    for (int64_t i = 0; i < unfinished.shards; ++i)
      shards.push_back(std::make_shared<const ShardFile>((fs::path(folder_) / shard_name(i)).string(), true));
    shard_.shard = unfinished.shards;
    shard_.previous_hash = shards.back()->content_hash();
    content_hash_ = unfinished.content_hash;
    RecordCounter::go_on(unfinished.report, unfinished.file_hashes, shards);
  }
  /// Shards that a later process need not make again.
  int64_t shards_to_keep() const { return key_.empty() ? 0 : shard_.shard; }

  PrepareReport finish(const std::string& inputs_hash) {
    PrepareReport report = RecordCounter::finish();
    if (report.usable > 0) {
      shard_.last = true;
      shard_.inputs_hash = inputs_hash;
      write_shard_file();
    }
    report.shards = shard_.shard;
    report.content_hash = content_hash_;
    report.inputs_hash = inputs_hash;
    return report;
  }

 private:
  void before_usable(int64_t residues) override {
    if (std::ssize(shard_.tokens) + residues <= max_shard_bytes_ || shard_.tokens.empty()) return;
    write_shard_file();
    if (!key_.empty())
      write_unfinished(folder_, key_, {shard_.shard, content_hash_, hashes_of_done_files(), counts_before_record()});
  }
  void usable(std::string_view id, std::span<const uint8_t> tokens) override {
    shard_.tokens.insert(shard_.tokens.end(), tokens.begin(), tokens.end());
    shard_.lengths.push_back(static_cast<uint32_t>(tokens.size()));
    shard_.ids += id;
    shard_.id_offsets.push_back(std::ssize(shard_.ids));
  }

  void write_shard_file() {
    shard_.previous_hash = write_shard((fs::path(folder_) / shard_name(shard_.shard)).string(), shard_);
    // The last hash stands for the whole set: each shard's hash is in the next one.
    content_hash_ = chained_hash(content_hash_, shard_.previous_hash);
    ++shard_.shard;
    shard_.tokens.clear();
    shard_.lengths.clear();
    shard_.ids.clear();
    shard_.id_offsets.assign(1, 0);
  }

  const std::string& folder_;
  const std::string key_;
  int64_t max_shard_bytes_;
  ShardContent shard_;
  std::string content_hash_;
};

// Why a report has no usable record.
std::string why_none(const PrepareReport& report) {
  if (report.records == 0) return "there is no record in it";
  std::string reasons;
  for (size_t i = 0; i < kSkips; ++i)
    if (report.skipped[i] > 0)
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", with_thousands(report.skipped[i]),
                             skip_reason(static_cast<Skip>(i)));
  return fmt::format("{} records, all skipped: {}", with_thousands(report.records), reasons);
}

// The report when `folder` holds just what these inputs and settings give.
bool holds_same(const std::string& folder, const std::string& hash) {
  try {
    return is_shard_folder(folder) && open_shard_folder(folder, false).back()->inputs_hash() == hash;
  } catch (const DataError&) {
    return false;  // damaged: not the same
  }
}

}  // namespace

std::string progress_text(const PrepareProgress& p) {
  const double seconds = std::max(p.seconds, 1e-9);
  const double rate = static_cast<double>(p.bytes_done - p.bytes_before) / seconds;
  const std::string done = fmt::format("{} records, {} records/s, {}/s", human_count(static_cast<double>(p.records)),
                                       human_count(static_cast<double>(p.records - p.records_before) / seconds),
                                       human_bytes(static_cast<int64_t>(rate)));
  if (p.bytes_total == 0) return fmt::format("{}, {}", human_bytes(p.bytes_done), done);
  const int64_t left = std::max<int64_t>(p.bytes_total - p.bytes_done, 0);
  return fmt::format("{:.0f} % of {}, {}, {} left",
                     100 * static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total),
                     human_bytes(p.bytes_total), done, human_duration(static_cast<double>(left) / std::max(rate, 1.0)));
}

std::string inputs_hash(const std::vector<std::string>& files, const PrepareOptions& options) {
  std::vector<std::string> hashes;
  for (const std::string& file : files)
    hashes.push_back(hash_file(file, [&] {
      if (options.should_stop && options.should_stop()) throw PrepareStopped("stopped; nothing was written");
    }));
  return combined_hash(files, hashes, options);
}

PrepareReport prepare(const std::vector<std::string>& inputs, const std::string& folder,
                      const PrepareOptions& options) {
  const std::vector<std::string> files = expand_paths(inputs);
  if (files.empty()) fail<DataError>("no input files were given");
  for (const std::string& file : files) format_of(file, options.format);
  const bool streams = std::any_of(files.begin(), files.end(), is_stream);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    fail<DataError>("{} exists and is not a folder", folder);
  if (fs::is_directory(folder, error) && !fs::is_empty(folder, error)) {
    if (!streams && !options.force) {  // streams cannot be read twice
      if (const std::string hash = inputs_hash(files, options); holds_same(folder, hash)) {
        PrepareReport report;
        report.already_there = true;
        report.inputs_hash = hash;
        return report;
      }
    }
    if (!holds_only_shards(folder))
      fail<DataError>("{} exists and holds other things than shards: give the name of a new folder", folder);
    if (!options.force)
      fail<DataError>("{} exists and {}. Give another folder, or --force to replace it", folder,
                      streams ? "standard input and pipes cannot be compared with it" : "holds other data");
  }

  const std::string key = streams ? "" : unfinished_key(files, options);
  FolderInProgress output(
      folder, [&](const std::string& leftover) { return !key.empty() && read_unfinished(leftover, key).has_value(); });
  ShardWriter writer(output.path(), options, key);
  std::vector<std::string> hashes;
  try {
    if (output.goes_on()) {
      const auto unfinished = read_unfinished(output.path(), key);
      ESM_CHECK(unfinished.has_value(), "what was left at {} has changed", output.path());
      log::info("going on after {} shards ({} records) of a call that did not end", unfinished->shards,
                with_thousands(unfinished->report.records));
      writer.go_on(*unfinished);
    }
    hashes = writer.read_files(files);
  } catch (const PrepareStopped&) {
    if (writer.shards_to_keep() == 0) throw;
    output.keep();
    throw PrepareStopped(
        fmt::format("stopped; {} shards are kept: the same command goes on after them", writer.shards_to_keep()));
  }
  PrepareReport report = writer.finish(combined_hash(files, hashes, options));
  remove_all_but_shards(output.path(), report.shards);
  if (report.usable == 0)
    fail<DataError>("no usable sequence in {}{}: {}", files.front(),
                    files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "", why_none(report));
  const auto in_output = [&](const std::string& name) { return (fs::path(output.path()) / name).string(); };
  write_file_atomically(in_output(kReportText), to_text(report));
  std::map<std::string, std::string> checksums{{kReportText, hash_file(in_output(kReportText))}};
  for (const std::string& name : shard_names(output.path())) checksums[name] = hash_file(in_output(name));
  write_file_atomically(in_output(kReportJson), sealed_json(report, checksums));
  if (!output.put_in_place(options.force)) {
    if (!holds_same(folder, report.inputs_hash))
      fail<DataError>("{} was made by another process with other content", folder);
    report.already_there = true;
  }
  return report;
}

}  // namespace esm::data
