// Bytes of an input file, unpacked when it is gzip. The only file that knows zlib is byte_source.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"

namespace esm::data {

/// Reads a file from beginning to end. gzip is recognised by its first bytes, whatever the name; all members of a
/// concatenated or block-compressed (bgzip) file are read.
class ByteSource {
 public:
  /// `on_raw` sees every byte of the file as it lies on disk, in order (for hashing); may be empty.
  /// Throws DataError naming the path: missing, a folder, unreadable, or packed in a way that is not read.
  explicit ByteSource(const std::string& path, std::function<void(std::span<const std::byte>)> on_raw = {});
  ~ByteSource();
  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;

  /// Fills `out` from its beginning and returns the number of bytes; less than out.size() only at the end of the file.
  /// Throws DataError when reading fails or the gzip stream is cut or damaged.
  size_t read(std::span<char> out);

  /// Bytes of the file on disk taken so far, and in all.
  int64_t raw_bytes_read() const;
  int64_t raw_bytes() const;
  bool compressed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace esm::data
