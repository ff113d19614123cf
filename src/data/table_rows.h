// CSV and TSV text as rows of fields, and the names of the columns. What the columns mean is up to the caller.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"

namespace esm::data {

/// `text` without blanks and tabs around it.
std::string_view trimmed(std::string_view text);
/// With ASCII letters in lower case.
std::string lower(std::string_view text);

/// Fields of one row, in one buffer.
class TableRow {
 public:
  void clear() {
    text_.clear();
    ends_.clear();
  }
  void append(std::string_view piece) { text_ += piece; }
  void end_field() { ends_.push_back(text_.size()); }
  size_t fields() const { return ends_.size(); }
  /// Memory of the text and of the ends of the fields, which of a row of delimiters alone is most of it.
  size_t bytes() const { return text_.size() + sizeof(size_t) * ends_.size(); }
  std::string_view operator[](size_t field) const {
    const size_t begin = field == 0 ? 0 : ends_[field - 1];
    return std::string_view(text_).substr(begin, ends_[field] - begin);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

/// The first row of a table: what its columns are called.
class TableHeader {
 public:
  /// `path` and `line` are for messages.
  TableHeader(const TableRow& row, std::string path, int64_t line);

  const std::vector<std::string>& names() const { return names_; }
  /// 'id', 'sequence'; of very many the first ones and the number of the others
  std::string quoted_names() const;
  /// The one column of this name; looked for as it stands, then without regard to case. Throws DataError when two
  /// columns have it.
  std::optional<size_t> find(std::string_view name) const;
  /// The first of `names` that is there.
  std::optional<size_t> find_any(std::span<const std::string_view> names) const;
  /// Throws DataError when `row` has another number of fields.
  void check(const TableRow& row, int64_t line) const;

 private:
  std::string path_;
  int64_t line_;
  std::vector<std::string> names_;
};

/// Takes rows; the first one is the header.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void header(const TableRow& row, int64_t line) = 0;
  virtual void row(const TableRow& row, int64_t line) = 0;
};

/// Reads the whole of `source`, called `path` in messages. RFC 4180: fields in double quotes may hold the delimiter,
/// line ends and doubled quotes. Takes LF, CRLF and lone CR line ends, a byte order mark, blank lines and a missing
/// last newline. Calls `tick` about once a MiB. Memory: one row. Throws DataError with path, line and column: no row at
/// all, a quote that does not end or is followed by text, a NUL byte, a row that takes more than 256 MiB (8 bytes a
/// field on top of the text).
void read_rows(ByteSource& source, const std::string& path, char delimiter, RowSink& sink,
               const std::function<void()>& tick);

}  // namespace esm::data
