#include "data/table_reader.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"
#include "data/table_rows.h"

namespace esm::data {
namespace {

constexpr std::string_view kSequenceNames[] = {
    "sequence", "seq", "protein_sequence", "aa_sequence", "aa_seq", "mutated_sequence", "protein"};
constexpr std::string_view kIdNames[] = {"id",         "name",       "accession", "entry",      "identifier",
                                         "protein_id", "uniprot_id", "ur90_id",   "entry_name", "header"};
constexpr std::string_view kTargetNames[] = {"target"};
constexpr std::string_view kMissing[] = {"", "na", "n/a", "nan", "null", "none"};

bool is_missing(std::string_view value) {
  return std::find(std::begin(kMissing), std::end(kMissing), lower(trimmed(value))) != std::end(kMissing);
}

constexpr std::string_view kYes[] = {"true", "t", "1", "1.0", "yes", "y"};
constexpr std::string_view kNo[] = {"false", "f", "0", "0.0", "no", "n"};

// "train", "valid", "test", or "" for a value that names no split. `clear`: the column validation says yes or no.
std::string_view split_name(std::string_view set, std::string_view validation, bool& clear) {
  const std::string name = lower(trimmed(set)), valid = lower(trimmed(validation));
  const auto among = [&](const auto& words) {
    return std::find(std::begin(words), std::end(words), valid) != std::end(words);
  };
  clear = true;
  if (name == "test") return "test";
  if (name == "valid" || name == "validation" || name == "val") return "valid";
  if (name != "train") return "";
  if (among(kYes)) return "valid";
  clear = among(kNo) || is_missing(valid);
  return "train";
}

// What the columns mean and what becomes of a row.
class RecordMaker : public RowSink {
 public:
  RecordMaker(const std::string& path, char delimiter, const TableOptions& options, RecordSink& sink)
      : path_(path), delimiter_(delimiter), options_(options), sink_(sink) {}

  void header(const TableRow& row, int64_t line) override {
    header_.emplace(row, path_, line);
    const std::vector<std::string>& names = header_->names();
    const auto sequence = choose(options_.sequence_column, kSequenceNames, "sequence_column", line);
    if (!sequence) no_sequence_column(line);
    sequence_ = *sequence;
    id_ = choose(options_.id_column, kIdNames, "id_column", line);
    target_ = choose(options_.target_column, kTargetNames, "target_column", line);
    set_ = header_->find("set");
    validation_ = header_->find("validation");
    if (!options_.split.empty() && !set_)
      fail<DataError>("{}:{}: rows of the split '{}' are wanted, but there is no column 'set'. The columns are {}",
                      path_, line, options_.split, header_->quoted_names());
    std::string taken = fmt::format("sequences from column '{}'", names[sequence_]);
    taken += id_ ? fmt::format(", ids from '{}'", names[*id_]) : ", no ids";
    if (target_) taken += fmt::format(", only rows with a value in '{}'", names[*target_]);
    sink_.columns(taken);
  }

  void row(const TableRow& row, int64_t line) override {
    header_->check(row, line);
    if (set_) {
      bool clear = true;
      const std::string_view split = split_name(row[*set_], validation_ ? row[*validation_] : "", clear);
      if (!options_.split.empty() && !clear)
        fail<DataError>("{}:{}: the column 'validation' holds '{}'; true or false expected", path_, line,
                        row[*validation_]);
      if (!options_.split.empty() && split != options_.split) return sink_.skip_record(Skip::kOtherSplit);
      if (!split.empty()) sink_.split(split);
    }
    if (target_ && is_missing(row[*target_])) return sink_.skip_record(Skip::kNoTarget);
    sink_.begin_record(id_ ? trimmed(row[*id_]) : "");
    sink_.sequence(row[sequence_]);
    sink_.end_record();
  }

 private:
  std::optional<size_t> choose(const std::string& wanted, std::span<const std::string_view> usual,
                               std::string_view option, int64_t line) const {
    if (wanted == kNoColumn) return std::nullopt;
    if (wanted.empty()) return header_->find_any(usual);
    const auto found = header_->find(wanted);
    if (!found)
      fail<DataError>("{}:{}: there is no column '{}' ({}). The columns are {}", path_, line, wanted, option,
                      header_->quoted_names());
    return found;
  }

  [[noreturn]] void no_sequence_column(int64_t line) const {
    const std::vector<std::string>& names = header_->names();
    std::string hint;
    for (const char other : {',', '\t', ';'})
      if (names.size() == 1 && other != delimiter_ && names[0].find(other) != std::string::npos)
        hint = fmt::format(". The fields seem to be separated by {}: {}",
                           other == ','   ? "commas"
                           : other == ';' ? "semicolons"
                                          : "tabs",
                           other == ';'   ? "save it with commas"
                           : other == ',' ? "call it .csv"
                                          : "call it .tsv");
    if (names[0].starts_with('>')) hint = ". This looks like FASTA: call it .fasta";
    fail<DataError>(
        "{}:{}: no column looks like sequences (sequence, seq, ...). The columns are {}. Name the right one with "
        "sequence_column{}",
        path_, line, header_->quoted_names(), hint);
  }

  const std::string& path_;
  char delimiter_;
  const TableOptions& options_;
  RecordSink& sink_;
  std::optional<TableHeader> header_;
  size_t sequence_ = 0;
  std::optional<size_t> id_, target_, set_, validation_;
};

}  // namespace

void read_table(ByteSource& source, const std::string& path, char delimiter, const TableOptions& options,
                RecordSink& sink) {
  RecordMaker maker(path, delimiter, options, sink);
  read_rows(source, path, delimiter, maker, [&sink] { sink.tick(); });
}

}  // namespace esm::data
