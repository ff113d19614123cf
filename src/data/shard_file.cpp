// The part of a shard's reading that needs no HDF5: bytes at known places of a file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <tuple>

#include "base/check.h"
#include "base/hash.h"
#include "data/hdf5_shards.h"
#include "data/vocabulary.h"

namespace esm::data {
namespace {

constexpr int64_t kBlock = 64;  // sequences between two stored offsets
constexpr std::string_view kSignature("\x89HDF\r\n\x1a\n", 8);

}  // namespace

struct ShardFile::Touched {
  explicit Touched(size_t chunks) : flags(chunks) {}
  std::vector<std::atomic<bool>> flags;
};

ShardFile::ShardFile(const std::string& path, bool lazy_checksums)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // no wait for a pipe's writer
  if (!file_.valid()) fail<DataError>("cannot open {}: {}", path, errno_text());
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) fail<DataError>("cannot read {}: {}", path, errno_text());
  if (!S_ISREG(info.st_mode)) fail<DataError>("{} is not a regular file", path);
  file_bytes_ = static_cast<int64_t>(info.st_size);
  if (file_bytes_ == 0)
    fail<DataError>("{}: an HDF5 shard is wanted, but the file is empty (0 bytes): whatever wrote it was stopped",
                    path);
  std::string head(kSignature.size(), '\0');
  if (::pread(file_.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()) || head != kSignature)
    fail<DataError>("{}: an HDF5 shard is wanted, but this is not an HDF5 file (other first bytes)", path);
  read_layout();
  if (lazy_checksums) touched_ = std::make_unique<Touched>(checksums_.size());
}

ShardFile::~ShardFile() = default;

void ShardFile::read_lengths(const std::string& expected_hash) {
  lengths_.resize(static_cast<size_t>(lengths_at_.bytes / 4));
  read_bytes(lengths_at_, 0, std::as_writable_bytes(std::span(lengths_)));
  if (hash_hex(std::as_bytes(std::span(lengths_))) != expected_hash)
    fail<DataError>("{}: the lengths are damaged; {}", path_, kMakeAgain);
  int64_t total = 0;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    if (i % kBlock == 0) block_offsets_.push_back(total);
    if (lengths_[i] == 0) fail<DataError>("{}: record {} has no residue: the file is damaged", path_, i);
    total += lengths_[i];
  }
  if (total != residues_)
    fail<DataError>("{}: the lengths add up to {} residues, but there are {}: the file is damaged", path_, total,
                    residues_);
}

void ShardFile::read_bytes(const Extent& extent, int64_t begin, std::span<std::byte> out) const {
  ESM_CHECK(begin >= 0 && begin + std::ssize(out) <= extent.bytes, "reading {} bytes at {} of {}", out.size(), begin,
            extent.bytes);
  int64_t at = extent.offset + begin;
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail<DataError>("cannot read {}: {}", path_, errno_text());
    if (n == 0) fail<DataError>("{}: the file became shorter while it was in use", path_);
    at += n;
    out = out.subspan(static_cast<size_t>(n));
  }
}

int64_t ShardFile::offset_of(int64_t record) const {
  int64_t offset = block_offsets_[static_cast<size_t>(record / kBlock)];
  for (int64_t i = record / kBlock * kBlock; i < record; ++i) offset += lengths_[static_cast<size_t>(i)];
  return offset;
}

void ShardFile::read(int64_t record, int64_t start, std::span<uint8_t> out) const {
  ESM_CHECK(record >= 0 && record < records() && start >= 0 && start + std::ssize(out) <= length(record),
            "reading residues {} to {} of record {}", start, start + std::ssize(out), record);
  const int64_t begin = offset_of(record) + start;
  if (touched_) check_chunks(begin, begin + std::ssize(out));
  read_bytes(tokens_, begin, std::as_writable_bytes(out));
  bool good = true;
  for (const uint8_t token : out) good &= is_residue(token);
  if (!good) fail<DataError>("{}: record {} holds values that are no residues: the file is damaged", path_, record);
}

void ShardFile::check_chunks(int64_t begin, int64_t end) const {
  thread_local std::vector<std::byte> buffer;
  for (int64_t chunk = begin / chunk_bytes_; chunk * chunk_bytes_ < end; ++chunk) {
    auto& flag = touched_->flags[static_cast<size_t>(chunk)];
    if (flag.load(std::memory_order_relaxed)) continue;
    check_chunk(chunk, buffer);
    flag.store(true, std::memory_order_relaxed);
  }
}

void ShardFile::check_chunk(int64_t chunk, std::vector<std::byte>& buffer) const {
  const int64_t begin = chunk * chunk_bytes_;
  buffer.resize(static_cast<size_t>(std::min(chunk_bytes_, residues_ - begin)));
  read_bytes(tokens_, begin, buffer);
  if (hash64(buffer) != checksums_[static_cast<size_t>(chunk)])
    fail<DataError>("{}: wrong checksum of residues {} to {}: the file is damaged; {}", path_, begin,
                    begin + std::ssize(buffer) - 1, kMakeAgain);
}

std::string ShardFile::id(int64_t record) const {
  ESM_CHECK(record >= 0 && record < records(), "id of record {}", record);
  int64_t ends[2] = {};
  read_bytes(id_offsets_, record * 8, std::as_writable_bytes(std::span(ends)));
  if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > ids_.bytes || ends[1] - ends[0] > (1 << 20))
    fail<DataError>("{}: the ids are damaged; {}", path_, kMakeAgain);
  std::string id(static_cast<size_t>(ends[1] - ends[0]), '\0');
  if (!id.empty()) read_bytes(ids_, ends[0], std::as_writable_bytes(std::span(id)));
  return id;
}

void ShardFile::visit_ids(const std::function<void(int64_t, std::string_view)>& visit) const {
  constexpr int64_t kRecords = 1 << 14;  // of a read
  std::vector<int64_t> ends;
  std::string text;
  for (int64_t first = 0; first < records(); first += kRecords) {
    const auto n = static_cast<size_t>(std::min(kRecords, records() - first));
    ends.resize(n + 1);
    read_bytes(id_offsets_, first * 8, std::as_writable_bytes(std::span(ends)));
    if (ends[0] < 0 || ends[n] > ids_.bytes || !std::is_sorted(ends.begin(), ends.end()))
      fail<DataError>("{}: the ids are damaged; {}", path_, kMakeAgain);
    text.resize(static_cast<size_t>(ends[n] - ends[0]));
    if (!text.empty()) read_bytes(ids_, ends[0], std::as_writable_bytes(std::span(text)));
    for (size_t i = 0; i < n; ++i)
      visit(first + static_cast<int64_t>(i), std::string_view(text).substr(static_cast<size_t>(ends[i] - ends[0]),
                                                                           static_cast<size_t>(ends[i + 1] - ends[i])));
  }
}

void ShardFile::verify_all() const {
  std::vector<int64_t> offsets{0};
  offsets.reserve(lengths_.size() + 1);
  for (const uint32_t n : lengths_) offsets.push_back(offsets.back() + n);
  if (hash_hex(std::as_bytes(std::span(offsets))) != offsets_hash_)
    fail<DataError>("{}: offsets and lengths do not agree; {}", path_, kMakeAgain);
  std::vector<std::byte> buffer;
  for (int64_t chunk = 0; chunk < std::ssize(checksums_); ++chunk) check_chunk(chunk, buffer);
  for (const auto& [name, extent, hash] :
       {std::tuple("offsets", &offsets_, &offsets_hash_), std::tuple("ids", &ids_, &ids_hash_),
        std::tuple("id_offsets", &id_offsets_, &id_offsets_hash_)}) {
    Hasher hasher;
    for (int64_t at = 0; at < extent->bytes; at += chunk_bytes_) {
      buffer.resize(static_cast<size_t>(std::min(chunk_bytes_, extent->bytes - at)));
      read_bytes(*extent, at, buffer);
      hasher.update(std::span<const std::byte>(buffer));
    }
    if (hasher.hex() != *hash) fail<DataError>("{}: the {} are damaged; {}", path_, name, kMakeAgain);
  }
}

}  // namespace esm::data
