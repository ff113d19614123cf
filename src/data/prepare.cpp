#include "data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/readers.h"
#include "data/record_counter.h"
#include "data/shard_folder.h"
#include "data/tokenizer.h"

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

// Writes usable records into shards as they fill up.
class ShardWriter : public RecordCounter {
 public:
  ShardWriter(const std::string& folder, const PrepareOptions& options)
      : RecordCounter(options), folder_(folder), max_shard_bytes_(options.max_shard_bytes) {}

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
  void usable(std::string_view id, std::span<const uint8_t> tokens) override {
    if (std::ssize(shard_.tokens) + std::ssize(tokens) > max_shard_bytes_ && !shard_.tokens.empty()) write_shard_file();
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
  int64_t max_shard_bytes_;
  ShardContent shard_;
  std::string content_hash_;
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
    if (!streams) {  // these cannot be read twice
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

  FolderInProgress output(folder);
  ShardWriter writer(output.path(), options);
  const std::vector<std::string> hashes = writer.read_files(files);
  PrepareReport report = writer.finish(combined_hash(files, hashes, options));
  if (report.usable == 0)
    fail<DataError>("no usable sequence in {}{}: {} records, all skipped for want of residues. Is this protein data?",
                    files.front(), files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "",
                    report.records);
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
