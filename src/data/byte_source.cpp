#include "data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace esm::data {
namespace {

constexpr size_t kInputBuffer = 256 << 10;

struct Magic {
  std::string_view bytes, name, advice;
};
// What people hand over by mistake; each would otherwise be read as strange letters.
const Magic kForeign[] = {
    {std::string_view("\x28\xB5\x2F\xFD", 4), "zstd-compressed", "unpack it with `zstd -d`, or pack it with gzip"},
    {"BZh", "bzip2-compressed", "unpack it with `bunzip2`, or pack it with gzip"},
    {std::string_view("\xFD"
                      "7zXZ",
                      5),
     "xz-compressed", "unpack it with `unxz`, or pack it with gzip"},
    {std::string_view("PK\x03\x04", 4), "a zip archive", "unpack it with `unzip`"},
    {"PAR1", "a parquet table", "export its sequences as FASTA"},
    {std::string_view("SQLite format 3\0", 16), "an SQLite database", "export its sequences as FASTA"},
    {std::string_view("\x89HDF\r\n\x1a\n", 8), "an HDF5 file", "give shards to data.train or data.valid directly"},
    {std::string_view("\xFF\xFE", 2), "UTF-16 text", "save it as UTF-8 or plain ASCII"},
    {std::string_view("\xFE\xFF", 2), "UTF-16 text", "save it as UTF-8 or plain ASCII"},
};

}  // namespace

struct ByteSource::State {
  std::string path;
  FileDescriptor file;
  std::function<void(std::span<const std::byte>)> on_raw;
  int64_t size = 0, taken = 0;
  bool gzip = false;
  bool in_member = false;  // between the first byte of a member and its end
  std::vector<char> input;
  size_t begin = 0, end = 0;  // unread part of `input`
  z_stream stream{};

  ~State() {
    if (gzip) inflateEnd(&stream);
  }

  // Refills an empty input buffer; false at the end of the file.
  bool refill() {
    if (begin < end) return true;
    begin = 0;
    end = raw_read(input.data(), input.size());
    return end > 0;
  }

  size_t raw_read(char* out, size_t capacity) {
    size_t n = 0;
    while (n < capacity) {
      const ssize_t got = ::read(file.get(), out + n, capacity - n);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail<DataError>("cannot read {}: {}", path, errno_text());
      if (got == 0) break;
      n += static_cast<size_t>(got);
    }
    taken += static_cast<int64_t>(n);
    if (on_raw && n > 0) on_raw(std::as_bytes(std::span(out, n)));
    return n;
  }

  size_t read_plain(std::span<char> out) {
    const size_t ready = std::min(out.size(), end - begin);
    std::copy_n(input.data() + begin, ready, out.data());
    begin += ready;
    return ready + (ready < out.size() ? raw_read(out.data() + ready, out.size() - ready) : 0);
  }

  size_t read_gzip(std::span<char> out) {
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    while (stream.avail_out > 0) {
      if (!refill()) {
        if (in_member)
          fail<DataError>(
              "{}: the gzip file is cut (it ends after {} bytes in the middle of its data). "
              "Fetch or pack it again; nothing was taken from it",
              path, size);
        break;
      }
      if (!in_member && !next_member()) break;
      stream.next_in = reinterpret_cast<Bytef*>(input.data() + begin);
      stream.avail_in = static_cast<uInt>(end - begin);
      const int result = inflate(&stream, Z_NO_FLUSH);
      begin = end - stream.avail_in;
      if (result == Z_STREAM_END) {
        in_member = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail<DataError>(
            "{}: the gzip file is damaged near byte {} ({}). Fetch or pack it again; nothing was taken from it", path,
            taken - static_cast<int64_t>(end - begin), stream.msg != nullptr ? stream.msg : "no reason given");
      }
    }
    return out.size() - stream.avail_out;
  }

  // At a border between members: false when only the zero padding of tapes and block devices is left.
  bool next_member() {
    if (input[begin] == '\0') {
      do {
        while (begin < end && input[begin] == '\0') ++begin;
      } while (begin == end && refill());
      if (begin == end) return false;
    }
    if (input[begin] != '\x1F')
      fail<DataError>("{}: the gzip file is damaged: byte {} should begin another member but does not", path,
                      taken - static_cast<int64_t>(end - begin));
    ESM_CHECK(inflateReset(&stream) == Z_OK, "zlib does not start again");
    in_member = true;
    return true;
  }
};

ByteSource::ByteSource(const std::string& path, std::function<void(std::span<const std::byte>)> on_raw)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  s.on_raw = std::move(on_raw);
  s.file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!s.file.valid()) fail<DataError>("cannot open {}: {}", path, errno_text());
  struct stat info {};
  if (::fstat(s.file.get(), &info) != 0) fail<DataError>("cannot read {}: {}", path, errno_text());
  if (S_ISDIR(info.st_mode))
    fail<DataError>("{} is a folder, not a sequence file: name the files in it, for example '{}/*.fasta'", path, path);
  s.size = static_cast<int64_t>(info.st_size);
  s.input.resize(kInputBuffer);
  if (!s.refill()) return;
  const std::string_view head(s.input.data(), std::min<size_t>(s.end, 16));
  for (const Magic& magic : kForeign)
    if (head.starts_with(magic.bytes)) fail<DataError>("{} is {}, not FASTA: {}", path, magic.name, magic.advice);
  if (!head.starts_with("\x1F\x8B")) return;
  ESM_CHECK(inflateInit2(&s.stream, 15 + 16) == Z_OK, "zlib does not start");
  s.gzip = true;
  s.in_member = true;
}

ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;

size_t ByteSource::read(std::span<char> out) { return state_->gzip ? state_->read_gzip(out) : state_->read_plain(out); }
int64_t ByteSource::raw_bytes_read() const { return state_->taken; }
int64_t ByteSource::raw_bytes() const { return state_->size; }
bool ByteSource::compressed() const { return state_->gzip; }

}  // namespace esm::data
