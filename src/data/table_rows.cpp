#include "data/table_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace esm::data {
namespace {

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kRowLimit = 256 << 20;
constexpr size_t kShownNames = 200;  // of columns, in messages
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Cuts text into rows and fields.
class TableParser {
 public:
  TableParser(const std::string& path, char delimiter, RowSink& sink)
      : path_(path), delimiter_(delimiter), sink_(sink) {
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
    if (!seen_header_)
      fail<DataError>("{}: the table is empty: a first line with the names of its columns is wanted", path_);
  }

 private:
  enum class Place { kFieldStart, kPlain, kQuoted, kQuoteSeen };

  // Characters of the line up to `at` of the present text, from 1.
  int64_t column(size_t at) const { return static_cast<int64_t>(at) - line_begin_ + 1; }

  void append(std::string_view piece) {
    row_blank_ = row_blank_ && piece.find_first_not_of(" \t") == std::string_view::npos;
    row_.append(piece);
    check_size();
  }

  void check_size() const {
    if (row_.bytes() > kRowLimit)
      fail<DataError>(
          "{}:{}: a row that takes more than {} MiB of memory ({} fields so far): this is no table of proteins{}",
          path_, row_line_, kRowLimit >> 20, row_.fields(),
          place_ == Place::kQuoted ? ", or a quote is not closed" : "");
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
      check_size();
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
    if (!row_blank_) seen_header_ ? sink_.row(row_, row_line_) : sink_.header(row_, row_line_);
    seen_header_ |= !row_blank_;
    row_.clear();
    row_blank_ = true;
    place_ = Place::kFieldStart;
  }

  const std::string& path_;
  char delimiter_;
  std::array<bool, 256> ends_field_{};
  RowSink& sink_;
  Place place_ = Place::kFieldStart;
  TableRow row_;
  bool row_blank_ = true, after_cr_ = false, seen_header_ = false;
  int64_t line_ = 1, row_line_ = 1, quote_line_ = 0, quote_column_ = 0;
  int64_t line_begin_ = 0;  // where the present line begins, counted from the present text; negative: in an earlier one
};

}  // namespace

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

TableHeader::TableHeader(const TableRow& row, std::string path, int64_t line) : path_(std::move(path)), line_(line) {
  names_.reserve(row.fields());
  for (size_t i = 0; i < row.fields(); ++i) names_.emplace_back(trimmed(row[i]));
}

std::string TableHeader::quoted_names() const {
  std::string list;
  const size_t shown = std::min(names_.size(), kShownNames);
  for (size_t i = 0; i < shown; ++i) list += fmt::format("{}'{}'", i == 0 ? "" : ", ", names_[i]);
  if (shown < names_.size()) list += fmt::format(" and {} more", names_.size() - shown);
  return list;
}

std::optional<size_t> TableHeader::find(std::string_view name) const {
  for (const bool exact : {true, false}) {
    std::optional<size_t> found;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (exact ? names_[i] != name : lower(names_[i]) != lower(name)) continue;
      if (found)
        fail<DataError>("{}:{}: two columns are called '{}' (fields {} and {})", path_, line_, name, *found + 1, i + 1);
      found = i;
    }
    if (found) return found;
  }
  return std::nullopt;
}

std::optional<size_t> TableHeader::find_any(std::span<const std::string_view> names) const {
  for (const std::string_view name : names)
    if (const auto found = find(name)) return found;
  return std::nullopt;
}

void TableHeader::check(const TableRow& row, int64_t line) const {
  if (row.fields() != names_.size())
    fail<DataError>("{}:{}: column {}: the row has {} fields, the header has {}", path_, line,
                    std::min(row.fields(), names_.size()) + 1, row.fields(), names_.size());
}

void read_rows(ByteSource& source, const std::string& path, char delimiter, RowSink& sink,
               const std::function<void()>& tick) {
  TableParser parser(path, delimiter, sink);
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
    tick();
  }
  parser.finish();
}

}  // namespace esm::data
