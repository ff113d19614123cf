// The entries of a zip file, stored (not compressed), as torch.save writes them. The only place that knows minizip.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"

namespace esm::checkpoint {

/// One mapped file, zip64 included. Opening reads the directory only. Every extent lies inside the file, whatever the
/// directory says. Errors are CheckpointErrors that name the file.
class ZipArchive {
 public:
  struct Entry {
    std::span<const std::byte> bytes;  // valid as long as the archive lives
    uint32_t crc = 0;                  // 0: not recorded
    bool is_stored = true;             // compressed or encrypted entries cannot be used: bytes is empty
  };

  explicit ZipArchive(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return std::ssize(file_.bytes()); }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// Bytes of an entry, compared with its checksum. Throws when there is none, when it is not stored, or damaged.
  std::span<const std::byte> read(std::string_view name) const;

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace esm::checkpoint
