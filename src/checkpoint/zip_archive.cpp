#include "checkpoint/zip_archive.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/check.h"

namespace esm::checkpoint {
namespace {

constexpr int64_t kMaxEntries = 100'000;  // ESM-2 15B has 800
constexpr size_t kMaxNameBytes = 1024;

struct Closer {
  void operator()(void* zip) const { unzClose(zip); }
};
using Zip = std::unique_ptr<void, Closer>;

MappedFile open_mapped(const std::string& path) {
  try {
    return MappedFile(path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
}

// Where the bytes of the current entry lie. The directory says how many there are, the entry's own header where.
std::span<const std::byte> extent(unzFile zip, const unz_file_info64& info, std::span<const std::byte> file,
                                  const std::string& what) {
  if (info.compressed_size != info.uncompressed_size)
    fail<CheckpointError>("{}: damaged: {} bytes are stored as {}", what, info.uncompressed_size, info.compressed_size);
  int method = 0, level = 0;
  if (unzOpenCurrentFile2(zip, &method, &level, 1) != UNZ_OK)
    fail<CheckpointError>("{}: damaged: its header is not the one that the directory names", what);
  const ZPOS64_T begin = unzGetCurrentFileZStreamPos64(zip);
  unzCloseCurrentFile(zip);
  if (begin > file.size() || info.uncompressed_size > file.size() - begin)
    fail<CheckpointError>(
        "{}: damaged (cut off, an incomplete download or copy?): {} bytes from byte {} on, the file has {}", what,
        info.uncompressed_size, begin, file.size());
  return file.subspan(begin, info.uncompressed_size);
}

}  // namespace

ZipArchive::ZipArchive(const std::string& path) : path_(path), file_(open_mapped(path)) {
  const Zip zip(unzOpen64(path.c_str()));
  if (zip == nullptr)
    fail<CheckpointError>(
        "{}: damaged (cut off, an incomplete download or copy?): a zip file ends with a directory, which is not there",
        path);
  std::array<char, kMaxNameBytes + 1> name{};
  int status = unzGoToFirstFile(zip.get());
  for (; status == UNZ_OK; status = unzGoToNextFile(zip.get())) {
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(zip.get(), &info, name.data(), kMaxNameBytes, nullptr, 0, nullptr, 0) != UNZ_OK) break;
    if (info.size_filename > kMaxNameBytes)
      fail<CheckpointError>("{}: damaged: an entry with a name of {} bytes", path, info.size_filename);
    const std::string key(name.data(), info.size_filename);
    const std::string what = fmt::format("{}: '{}'", path, key);
    Entry entry{.bytes = {},
                .crc = static_cast<uint32_t>(info.crc),
                .is_stored = info.compression_method == 0 && (info.flag & 1) == 0};
    if (entry.is_stored) entry.bytes = extent(zip.get(), info, file_.bytes(), what);
    if (!entries_.emplace(key, entry).second) fail<CheckpointError>("{}: damaged: it stands there twice", what);
    if (std::ssize(entries_) > kMaxEntries) fail<CheckpointError>("{}: more than {} entries", path, kMaxEntries);
  }
  if (status != UNZ_END_OF_LIST_OF_FILE) fail<CheckpointError>("{}: damaged: its directory cannot be read", path);
}

std::span<const std::byte> ZipArchive::read(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) fail<CheckpointError>("{}: damaged: '{}' is not in it", path_, name);
  const Entry& entry = it->second;
  if (!entry.is_stored)
    fail<CheckpointError>("{}: '{}' is compressed or encrypted; torch.save stores its data as they are", path_, name);
  if (entry.crc == 0) return entry.bytes;
  uLong crc = 0;
  constexpr size_t kPiece = size_t{1} << 24;  // zlib counts in 32 bits
  for (size_t at = 0; at < entry.bytes.size(); at += kPiece) {
    const auto piece = entry.bytes.subspan(at, std::min(kPiece, entry.bytes.size() - at));
    crc = crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
  }
  if (crc != entry.crc)
    fail<CheckpointError>("{}: damaged: '{}' has another checksum than it was written with", path_, name);
  return entry.bytes;
}

}  // namespace esm::checkpoint
