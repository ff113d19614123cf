#include "data/byte_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace esm::data {
namespace {

constexpr size_t kInputBuffer = 256 << 10;
constexpr std::string_view kZstdMagic("\x28\xB5\x2F\xFD", 4);
constexpr int kZstdWindowLog = 31, kZstdUsualWindowLog = 27;

/// The largest window that a file of `bytes` may ask for (0: a stream, of any size). Its first bytes may claim any, and
/// memory for it is taken at once; no file packed 64 to 1 needs more than this.
int zstd_window_log(int64_t bytes) {
  if (bytes == 0) return kZstdWindowLog;
  return std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes))) + 6, kZstdUsualWindowLog,
                    kZstdWindowLog);
}
constexpr int kPollMs = 200;

struct Magic {
  std::string_view bytes, name, advice;
};
// What people hand over by mistake; each would otherwise be read as strange letters.
const Magic kForeign[] = {
    {"BZh", "bzip2-compressed", "unpack it with `bunzip2`, or pack it with gzip"},
    {std::string_view("\xFD"
                      "7zXZ",
                      5),
     "xz-compressed", "unpack it with `unxz`, or pack it with gzip"},
    {std::string_view("PK\x03\x04", 4), "a zip archive",
     "save an Excel workbook as CSV; unpack anything else with `unzip`"},
    {"PAR1", "a parquet table", kParquetAdvice},
    {std::string_view("SQLite format 3\0", 16), "an SQLite database",
     "export its sequences, for example with `sqlite3 -header -csv FILE 'SELECT id, sequence FROM protein' > "
     "FILE.csv`"},
    {std::string_view("\x89HDF\r\n\x1a\n", 8), "an HDF5 file", "give shards to data.train or data.valid directly"},
    {std::string_view("\xFF\xFE", 2), "UTF-16 text", "save it as UTF-8 or plain ASCII"},
    {std::string_view("\xFE\xFF", 2), "UTF-16 text", "save it as UTF-8 or plain ASCII"},
};

}  // namespace

struct ByteSource::State {
  enum class Packing { kNone, kGzip, kZstd };

  std::string path;  // as messages name it
  FileDescriptor file;
  SourceHooks hooks;
  bool stream_input = false;  // a pipe or a terminal: reading may wait
  int64_t size = 0, taken = 0;
  Packing packing = Packing::kNone;
  bool in_member = false;  // between the first byte of a member (gzip) or frame (zstd) and its end
  std::vector<char> input;
  size_t begin = 0, end = 0;  // unread part of `input`
  z_stream gzip{};
  ZSTD_DCtx* zstd = nullptr;

  ~State() {
    if (packing == Packing::kGzip) inflateEnd(&gzip);
    ZSTD_freeDCtx(zstd);
  }

  // Refills an empty input buffer; false at the end of the file.
  bool refill() {
    if (begin < end) return true;
    begin = 0;
    end = raw_read(input.data(), input.size());
    return end > 0;
  }

  // Signal handlers restart read(2), so a wish to stop is heard here while a pipe is silent.
  void wait_for_input() const {
    pollfd state{file.get(), POLLIN, 0};
    while (::poll(&state, 1, kPollMs) <= 0)
      if (hooks.while_waiting) hooks.while_waiting();
  }

  [[noreturn]] void cut(std::string_view kind) const {
    fail<DataError>(
        "{}: the {} file is cut (it ends after {} bytes in the middle of its data). "
        "Fetch or pack it again; nothing was taken from it",
        path, kind, taken);
  }
  [[noreturn]] void damaged(std::string_view kind, const char* reason) const {
    fail<DataError>("{}: the {} file is damaged near byte {} ({}). Fetch or pack it again; nothing was taken from it",
                    path, kind, taken - static_cast<int64_t>(end - begin), reason);
  }

  size_t raw_read(char* out, size_t capacity) {
    size_t n = 0;
    while (n < capacity) {
      if (stream_input) wait_for_input();
      const ssize_t got = ::read(file.get(), out + n, capacity - n);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail<DataError>("cannot read {}: {}", path, errno_text());
      if (got == 0) break;
      n += static_cast<size_t>(got);
    }
    taken += static_cast<int64_t>(n);
    if (hooks.on_raw && n > 0) hooks.on_raw(std::as_bytes(std::span(out, n)));
    return n;
  }

  size_t read_plain(std::span<char> out) {
    const size_t ready = std::min(out.size(), end - begin);
    std::copy_n(input.data() + begin, ready, out.data());
    begin += ready;
    return ready + (ready < out.size() ? raw_read(out.data() + ready, out.size() - ready) : 0);
  }

  size_t read_gzip(std::span<char> out) {
    gzip.next_out = reinterpret_cast<Bytef*>(out.data());
    gzip.avail_out = static_cast<uInt>(out.size());
    while (gzip.avail_out > 0) {
      if (!refill()) {
        if (in_member) cut("gzip");
        break;
      }
      if (!in_member && !next_member()) break;
      gzip.next_in = reinterpret_cast<Bytef*>(input.data() + begin);
      gzip.avail_in = static_cast<uInt>(end - begin);
      const int result = inflate(&gzip, Z_NO_FLUSH);
      begin = end - gzip.avail_in;
      if (result == Z_STREAM_END) {
        in_member = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        damaged("gzip", gzip.msg != nullptr ? gzip.msg : "no reason given");
      }
    }
    return out.size() - gzip.avail_out;
  }

  size_t read_zstd(std::span<char> out) {
    ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
    while (unpacked.pos < unpacked.size) {
      const bool more = refill();
      ZSTD_inBuffer packed{input.data() + begin, end - begin, 0};
      const size_t before = unpacked.pos;
      if (!more && !in_member) break;
      const size_t result = ZSTD_decompressStream(zstd, &unpacked, &packed);  // also gives out what it still holds
      begin += packed.pos;
      if (size > 0 && ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        fail<DataError>(
            "{}: the zstd file asks for a window of more memory than a file of {} bytes needs: it is damaged, or was "
            "packed from a pipe with --long; pack it again without",
            path, size);
      if (ZSTD_isError(result) != 0) damaged("zstd", ZSTD_getErrorName(result));
      in_member = result != 0;
      if (!more && in_member && unpacked.pos == before) cut("zstd");
    }
    return unpacked.pos;
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
    ESM_CHECK(inflateReset(&gzip) == Z_OK, "zlib does not start again");
    in_member = true;
    return true;
  }
};

bool is_stream(const std::string& path) {
  struct stat info {};
  const int result = path == kStandardInput ? ::fstat(STDIN_FILENO, &info) : ::stat(path.c_str(), &info);
  return path == kStandardInput || (result == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

ByteSource::ByteSource(const std::string& path, SourceHooks hooks) : state_(std::make_unique<State>()) {
  State& s = *state_;
  const bool standard = path == kStandardInput;
  s.path = standard ? "standard input" : path;
  s.hooks = std::move(hooks);
  s.file =
      FileDescriptor(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!s.file.valid()) fail<DataError>("cannot open {}: {}", s.path, errno_text());
  struct stat info {};
  if (::fstat(s.file.get(), &info) != 0) fail<DataError>("cannot read {}: {}", s.path, errno_text());
  if (S_ISDIR(info.st_mode))
    fail<DataError>("{} is a folder, not a sequence file: name the files in it, for example '{}/*.fasta'", s.path,
                    s.path);
  s.size = S_ISREG(info.st_mode) ? static_cast<int64_t>(info.st_size) : 0;
  s.stream_input = !S_ISREG(info.st_mode);
  s.input.resize(kInputBuffer);
  if (!s.refill()) return;
  const std::string_view head(s.input.data(), std::min<size_t>(s.end, 16));
  for (const Magic& magic : kForeign)
    if (head.starts_with(magic.bytes)) fail<DataError>("{} is {}, not text: {}", s.path, magic.name, magic.advice);
  s.in_member = true;
  if (head.starts_with("\x1F\x8B")) {
    ESM_CHECK(inflateInit2(&s.gzip, 15 + 16) == Z_OK, "zlib does not start");
    s.packing = State::Packing::kGzip;
  } else if (head.starts_with(kZstdMagic)) {
    s.zstd = ZSTD_createDCtx();
    ESM_CHECK(s.zstd != nullptr &&
                  ZSTD_isError(ZSTD_DCtx_setParameter(s.zstd, ZSTD_d_windowLogMax, zstd_window_log(s.size))) == 0,
              "zstd does not start");
    s.packing = State::Packing::kZstd;
  }
}

ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;

size_t ByteSource::read(std::span<char> out) {
  switch (state_->packing) {
    case State::Packing::kNone: return state_->read_plain(out);
    case State::Packing::kGzip: return state_->read_gzip(out);
    case State::Packing::kZstd: return state_->read_zstd(out);
  }
  fail<InternalError>("packing {}", static_cast<int>(state_->packing));
}
int64_t ByteSource::raw_bytes_read() const { return state_->taken; }
int64_t ByteSource::raw_bytes() const { return state_->size; }

}  // namespace esm::data
