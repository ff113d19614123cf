// Bytes of an input file, unpacked when it is gzip or zstd. The only file that knows these is byte_source.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"

namespace esm::data {

/// What to do with a parquet table, which is not read.
inline constexpr std::string_view kParquetAdvice =
    "parquet is not read; make a CSV of it, for example with "
    "`duckdb -c \"COPY (SELECT id, sequence FROM 'x.parquet') TO 'x.csv' (HEADER)\"` or "
    "`python -c \"import pandas; pandas.read_parquet('x.parquet').to_csv('x.csv', index=False)\"`";

/// Stands for standard input where the path of an input file is wanted.
inline constexpr std::string_view kStandardInput = "-";
/// Can the input be read once only (standard input, a pipe)?
bool is_stream(const std::string& path);

/// What a ByteSource tells while it reads; each may be empty.
struct SourceHooks {
  std::function<void(std::span<const std::byte>)> on_raw;  // every byte as it lies on disk, in order (for hashing)
  std::function<void()> while_waiting;  // a few times a second while a pipe has nothing to give; may throw
};

/// Reads a file from beginning to end. gzip and zstd are recognised by their first bytes, whatever the name; all
/// members or frames of a concatenated (or bgzip) file are read. Windows of zstd up to
/// 128 MiB are taken, larger ones (up to 2 GiB, --long=31) from streams and from files of at least 1/64 of their size.
class ByteSource {
 public:
  /// Throws DataError naming the path: missing, a folder, unreadable, or packed in a way that is not read.
  explicit ByteSource(const std::string& path, SourceHooks hooks = {});
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;

  /// Fills `out` from its beginning and returns the number of bytes; less than out.size() only at the end of the file.
  /// Throws DataError when reading fails or the packed data are cut or damaged.
  size_t read(std::span<char> out);

  /// Bytes of the file on disk taken so far, and in all (0 for streams).
  int64_t raw_bytes_read() const;
  int64_t raw_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace esm::data
