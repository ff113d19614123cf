#include "data/table_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"

namespace esm::data {
namespace {

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kRowLimit = 256 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSequenceNames[] = {
    "sequence", "seq", "protein_sequence", "aa_sequence", "aa_seq", "mutated_sequence", "protein"};
constexpr std::string_view kIdNames[] = {"id",         "name",       "accession", "entry",      "identifier",
                                         "protein_id", "uniprot_id", "ur90_id",   "entry_name", "header"};
constexpr std::string_view kTargetNames[] = {"target"};
constexpr std::string_view kMissing[] = {"", "na", "n/a", "nan", "null", "none"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

bool is_missing(std::string_view value) {
  return std::find(std::begin(kMissing), std::end(kMissing), lower(trimmed(value))) != std::end(kMissing);
}

// "train", "valid", "test", or "" for a value that names no split.
std::string_view split_name(std::string_view set, std::string_view validation) {
  const std::string name = lower(trimmed(set));
  if (name == "test") return "test";
  if (name == "valid" || name == "validation" || name == "val") return "valid";
  if (name != "train") return "";
  return lower(trimmed(validation)) == "true" ? "valid" : "train";
}

// Fields of one row, in one buffer; only those that are wanted keep their text.
class Row {
 public:
  void clear() {
    text_.clear();
    ends_.clear();
  }
  void append(std::string_view piece) { text_ += piece; }
  void end_field() { ends_.push_back(text_.size()); }
  size_t fields() const { return ends_.size(); }
  size_t bytes() const { return text_.size(); }
  std::string_view operator[](size_t field) const {
    const size_t begin = field == 0 ? 0 : ends_[field - 1];
    return std::string_view(text_).substr(begin, ends_[field] - begin);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

// What the columns mean and what becomes of a row.
class RecordMaker {
 public:
  RecordMaker(const std::string& path, char delimiter, const TableOptions& options, RecordSink& sink)
      : path_(path), delimiter_(delimiter), options_(options), sink_(sink) {}

  void take(const Row& row, int64_t line) {
    if (names_.empty())
      read_header(row, line);
    else
      read_row(row, line);
  }
  void finish() const {
    if (names_.empty())
      fail<DataError>("{}: the table is empty: a first line with the names of its columns is wanted", path_);
  }

 private:
  std::string quoted_names() const {
    std::string list;
    for (const std::string& name : names_) list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
    return list;
  }

  // The one column of this name; looked for as it stands, then without regard to case.
  std::optional<size_t> find(std::string_view name, int64_t line) const {
    for (const bool exact : {true, false}) {
      std::optional<size_t> found;
      for (size_t i = 0; i < names_.size(); ++i) {
        if (exact ? names_[i] != name : lower(names_[i]) != lower(name)) continue;
        if (found)
          fail<DataError>("{}:{}: two columns are called '{}' (fields {} and {})", path_, line, name, *found + 1,
                          i + 1);
        found = i;
      }
      if (found) return found;
    }
    return std::nullopt;
  }

  std::optional<size_t> choose(const std::string& wanted, std::span<const std::string_view> usual,
                               std::string_view option, int64_t line) const {
    if (wanted == kNoColumn) return std::nullopt;
    if (!wanted.empty()) {
      const auto found = find(wanted, line);
      if (!found)
        fail<DataError>("{}:{}: there is no column '{}' ({}). The columns are {}", path_, line, wanted, option,
                        quoted_names());
      return found;
    }
    for (const std::string_view name : usual)
      if (const auto found = find(name, line)) return found;
    return std::nullopt;
  }

  void read_header(const Row& row, int64_t line) {
    for (size_t i = 0; i < row.fields(); ++i) names_.emplace_back(trimmed(row[i]));
    const auto sequence = choose(options_.sequence_column, kSequenceNames, "sequence_column", line);
    if (!sequence) no_sequence_column(line);
    sequence_ = *sequence;
    id_ = choose(options_.id_column, kIdNames, "id_column", line);
    target_ = choose(options_.target_column, kTargetNames, "target_column", line);
    set_ = find("set", line);
    validation_ = find("validation", line);
    if (!options_.split.empty() && !set_)
      fail<DataError>("{}:{}: rows of the split '{}' are wanted, but there is no column 'set'. The columns are {}",
                      path_, line, options_.split, quoted_names());
    std::string taken = fmt::format("sequences from column '{}'", names_[sequence_]);
    taken += id_ ? fmt::format(", ids from '{}'", names_[*id_]) : ", no ids";
    if (target_) taken += fmt::format(", only rows with a value in '{}'", names_[*target_]);
    sink_.columns(taken);
  }

  [[noreturn]] void no_sequence_column(int64_t line) const {
    std::string hint;
    for (const char other : {',', '\t', ';'})
      if (names_.size() == 1 && other != delimiter_ && names_[0].find(other) != std::string::npos)
        hint = fmt::format(". The fields seem to be separated by {}: {}",
                           other == ','   ? "commas"
                           : other == ';' ? "semicolons"
                                          : "tabs",
                           other == ';'   ? "save it with commas"
                           : other == ',' ? "call it .csv"
                                          : "call it .tsv");
    if (names_[0].starts_with('>')) hint = ". This looks like FASTA: call it .fasta";
    fail<DataError>(
        "{}:{}: no column looks like sequences (sequence, seq, ...). The columns are {}. Name the right one with "
        "sequence_column{}",
        path_, line, quoted_names(), hint);
  }

  void read_row(const Row& row, int64_t line) {
    if (row.fields() != names_.size())
      fail<DataError>("{}:{}: column {}: the row has {} fields, the header has {}", path_, line,
                      std::min(row.fields(), names_.size()) + 1, row.fields(), names_.size());
    if (set_) {
      const std::string_view split = split_name(row[*set_], validation_ ? row[*validation_] : "");
      if (!options_.split.empty() && split != options_.split) return sink_.skip_record(Skip::kOtherSplit);
      if (!split.empty()) sink_.split(split);
    }
    if (target_ && is_missing(row[*target_])) return sink_.skip_record(Skip::kNoTarget);
    sink_.begin_record(id_ ? trimmed(row[*id_]) : "");
    sink_.sequence(row[sequence_]);
    sink_.end_record();
  }

  const std::string& path_;
  char delimiter_;
  const TableOptions& options_;
  RecordSink& sink_;
  std::vector<std::string> names_;
  size_t sequence_ = 0;
  std::optional<size_t> id_, target_, set_, validation_;
};

// Cuts text into rows and fields.
class TableParser {
 public:
  TableParser(const std::string& path, char delimiter, RecordMaker& maker)
      : path_(path), delimiter_(delimiter), maker_(maker) {
    for (const char c : {delimiter, '\n', '\r'}) ends_field_[static_cast<unsigned char>(c)] = true;
  }

  void parse(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
      const char c = text[at];
      if (after_cr_ && c == '\n') {  // second half of a CRLF; inside quotes both are kept as text
        after_cr_ = false;
        line_begin_ += 1;
        ++at;
        continue;
      }
      after_cr_ = false;
      switch (place_) {
        case Place::kFieldStart:
          place_ = Place::kPlain;
          if (c == '"') {
            place_ = Place::kQuoted;
            row_blank_ = false;
            quote_line_ = line_;
            quote_column_ = column(at);
            ++at;
          }
          break;
        case Place::kPlain: {
          size_t end = at;
          while (end < text.size() && !ends_field_[static_cast<unsigned char>(text[end])]) ++end;
          append(text.substr(at, end - at));
          at = end;
          if (at < text.size()) end_field_at(text[at], at);
          break;
        }
        case Place::kQuoted: {
          const size_t end = std::min(text.find('"', at), text.size());
          count_lines(text, at, end);
          append(text.substr(at, end - at));
          at = end;
          if (at < text.size()) {
            place_ = Place::kQuoteSeen;
            ++at;
          }
          break;
        }
        case Place::kQuoteSeen:
          if (c == '"') {
            append("\"");
            place_ = Place::kQuoted;
            ++at;
          } else if (c == delimiter_ || c == '\n' || c == '\r') {
            end_field_at(c, at);
          } else if (c == ' ' || (c == '\t' && delimiter_ != '\t')) {
            ++at;
          } else {
            fail<DataError>("{}:{}: column {}: text follows the closing quote of a field", path_, line_, column(at));
          }
          break;
      }
    }
    line_begin_ -= static_cast<int64_t>(text.size());
  }

  void finish() {
    if (place_ == Place::kQuoted)
      fail<DataError>("{}:{}: column {}: the quote that opens here is never closed", path_, quote_line_, quote_column_);
    if (place_ != Place::kFieldStart || row_.fields() > 0) end_row();
    maker_.finish();
  }

 private:
  enum class Place { kFieldStart, kPlain, kQuoted, kQuoteSeen };

  // Characters of the line up to `at` of the present text, from 1.
  int64_t column(size_t at) const { return static_cast<int64_t>(at) - line_begin_ + 1; }

  void append(std::string_view piece) {
    row_blank_ = row_blank_ && piece.find_first_not_of(" \t") == std::string_view::npos;
    row_.append(piece);
    if (row_.bytes() > kRowLimit)
      fail<DataError>("{}:{}: a row of more than {} MiB: this is no table of proteins{}", path_, row_line_,
                      kRowLimit >> 20, place_ == Place::kQuoted ? ", or a quote is not closed" : "");
  }

  // Line ends inside of quotes, for the numbers in messages.
  void count_lines(std::string_view text, size_t begin, size_t end) {
    for (size_t at = begin; (at = text.find('\n', at)) < end; ++at) {
      ++line_;
      line_begin_ = static_cast<int64_t>(at) + 1;
    }
  }

  void end_field_at(char c, size_t& at) {
    ++at;
    if (c == delimiter_) {
      row_blank_ = false;
      row_.end_field();
      place_ = Place::kFieldStart;
      return;
    }
    end_row();
    ++line_;
    row_line_ = line_;
    line_begin_ = static_cast<int64_t>(at);
    after_cr_ = c == '\r';
  }

  void end_row() {
    row_.end_field();
    if (!row_blank_) maker_.take(row_, row_line_);
    row_.clear();
    row_blank_ = true;
    place_ = Place::kFieldStart;
  }

  const std::string& path_;
  char delimiter_;
  std::array<bool, 256> ends_field_{};
  RecordMaker& maker_;
  Place place_ = Place::kFieldStart;
  Row row_;
  bool row_blank_ = true, after_cr_ = false;
  int64_t line_ = 1, row_line_ = 1, quote_line_ = 0, quote_column_ = 0;
  int64_t line_begin_ = 0;  // where the present line begins, counted from the present text; negative: in an earlier one
};

}  // namespace

void read_table(ByteSource& source, const std::string& path, char delimiter, const TableOptions& options,
                RecordSink& sink) {
  RecordMaker maker(path, delimiter, options, sink);
  TableParser parser(path, delimiter, maker);
  std::vector<char> buffer(kBuffer);
  int64_t offset = 0;
  for (bool last = false; !last;) {
    const size_t got = source.read(buffer);
    last = got < buffer.size();
    std::string_view text(buffer.data(), got);
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
      fail<DataError>("{}: not a text file: a NUL byte at offset {}", path, offset + static_cast<int64_t>(nul));
    if (offset == 0 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    offset += static_cast<int64_t>(got);
    parser.parse(text);
    sink.tick();
  }
  parser.finish();
}

}  // namespace esm::data
