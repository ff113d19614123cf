#include "data/hdf5_shards.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/narrow.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"

namespace esm::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they are");

constexpr std::string_view kFormat = "esmtrain-tokens";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kChunkBytes = 256 << 10;  // small: the first touch of a sequence reads and checks its whole chunk
constexpr std::string_view kWanted = "tokens, lengths, offsets, ids, id_offsets, checksums";

// --- A file driver without locks ----------------------------------------------------------------------------------
// HDF5 locks files unless told otherwise, and the environment variable HDF5_USE_FILE_LOCKING overrules the program's
// wish. Many network file systems refuse locks. A driver that has no lock function cannot be made to lock.
// A failed write is remembered but not told to HDF5, whose 1.10 releases crash at exit after a file could not be
// closed; whoever opened the file looks at the memory.

struct DriverInfo {
  int* write_error;  // receives the errno of the first failed write
};

struct PlainFile {
  H5FD_t base;  // must come first: HDF5 fills it
  int fd;
  int* write_error;
  haddr_t end_of_allocation;
  haddr_t size;
};
PlainFile* plain(H5FD_t* file) { return reinterpret_cast<PlainFile*>(file); }
const PlainFile* plain(const H5FD_t* file) { return reinterpret_cast<const PlainFile*>(file); }

H5FD_t* plain_open(const char* name, unsigned flags, hid_t access, haddr_t) {
  int mode = (flags & H5F_ACC_RDWR) != 0 ? O_RDWR : O_RDONLY;
  if ((flags & H5F_ACC_CREAT) != 0) mode |= O_CREAT;
  if ((flags & H5F_ACC_TRUNC) != 0) mode |= O_TRUNC;
  FileDescriptor fd(::open(name, mode | O_CLOEXEC, 0644));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return nullptr;
  const auto* driver_info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  auto file = std::make_unique<PlainFile>();
  file->write_error = driver_info == nullptr ? nullptr : driver_info->write_error;
  file->fd = fd.release();
  file->size = static_cast<haddr_t>(info.st_size);
  return &file.release()->base;
}
herr_t plain_close(H5FD_t* file) {
  const std::unique_ptr<PlainFile> owner(plain(file));
  return ::close(owner->fd) == 0 ? 0 : -1;
}
herr_t plain_query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr)
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}
haddr_t plain_get_eoa(const H5FD_t* file, H5FD_mem_t) { return plain(file)->end_of_allocation; }
herr_t plain_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  plain(file)->end_of_allocation = address;
  return 0;
}
haddr_t plain_get_eof(const H5FD_t* file, H5FD_mem_t) { return plain(file)->size; }

herr_t plain_read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  char* out = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t n = ::pread(plain(file)->fd, out, size, static_cast<off_t>(address));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) {  // allocated but never written: zeros, as in HDF5's own drivers
      std::fill_n(out, size, '\0');
      return 0;
    }
    out += n;
    address += static_cast<haddr_t>(n);
    size -= static_cast<size_t>(n);
  }
  return 0;
}
herr_t failed_write(const PlainFile& file) {
  if (file.write_error == nullptr) return -1;
  if (*file.write_error == 0) *file.write_error = errno;
  return 0;
}
herr_t plain_write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, const void* buffer) {
  PlainFile& f = *plain(file);
  const char* in = static_cast<const char*>(buffer);
  f.size = std::max(f.size, address + size);
  while (size > 0) {
    const ssize_t n = ::pwrite(f.fd, in, size, static_cast<off_t>(address));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed_write(f);
    in += n;
    address += static_cast<haddr_t>(n);
    size -= static_cast<size_t>(n);
  }
  return 0;
}
herr_t plain_truncate(H5FD_t* file, hid_t, hbool_t) {
  PlainFile& f = *plain(file);
  if (f.size == f.end_of_allocation) return 0;
  f.size = f.end_of_allocation;
  return ::ftruncate(f.fd, static_cast<off_t>(f.end_of_allocation)) == 0 ? 0 : failed_write(f);
}

hid_t plain_driver() {
  static const hid_t driver = [] {
    static H5FD_class_t table{};
    table.name = "esmtrain-plain";
    table.maxaddr = static_cast<haddr_t>(INT64_MAX);
    table.fc_degree = H5F_CLOSE_WEAK;
    table.fapl_size = sizeof(DriverInfo);
    table.open = plain_open;
    table.close = plain_close;
    table.query = plain_query;
    table.get_eoa = plain_get_eoa;
    table.set_eoa = plain_set_eoa;
    table.get_eof = plain_get_eof;
    table.read = plain_read;
    table.write = plain_write;
    table.truncate = plain_truncate;
    for (auto& kind : table.fl_map) kind = H5FD_MEM_SUPER;
    return H5FDregister(&table);
  }();
  ESM_CHECK(driver >= 0, "HDF5 does not take the file driver");
  return driver;
}

// --- Thin owners and checks ---------------------------------------------------------------------------------------

herr_t log_error(unsigned, const H5E_error2_t* error, void*) {
  log::debug("HDF5: {} ({}:{})", error->desc != nullptr ? error->desc : "", error->func_name, error->line);
  return 0;
}

// Throws DataError when `ok` is false; HDF5's own stack of errors goes to the log at debug level.
void require(bool ok, const std::string& path, std::string_view what) {
  if (ok) return;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, log_error, nullptr);
  H5Eclear2(H5E_DEFAULT);
  fail<DataError>("{}: {}", path, what);
}

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes now; false when HDF5 reports an error (flushing may fail).
  bool close() { return close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// HDF5 as distributed need not be thread-safe; only opening and writing shards use it.
std::unique_lock<std::mutex> hdf5_lock() {
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // Never code from elsewhere because a file names a filter: our shards have none.
  ESM_CHECK(H5PLset_loading_state(0) >= 0, "HDF5 does not take that plugins are off");
  return lock;
}

Handle file_access(int* write_error) {
  const DriverInfo info{write_error};
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  ESM_CHECK(access.valid() && H5Pset_driver(access.get(), plain_driver(), &info) >= 0 &&
                H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0,
            "HDF5 does not take the access settings");
  return access;
}

// Creation settings without times, so that the same content is the same file.
Handle timeless(hid_t kind) {
  Handle creation(H5Pcreate(kind), H5Pclose);
  ESM_CHECK(creation.valid() && H5Pset_obj_track_times(creation.get(), false) >= 0,
            "HDF5 does not take the creation settings");
  return creation;
}

std::string hash_of(const auto& values) { return hash_hex(std::as_bytes(std::span(values))); }

}  // namespace

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

// --- Writing ------------------------------------------------------------------------------------------------------
namespace {

class Writer {
 public:
  explicit Writer(const std::string& path)
      : path_(path),
        file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, timeless(H5P_FILE_CREATE).get(), file_access(&write_error_).get()),
              H5Fclose) {
    check(file_.valid());
  }

  template <class T>
  void dataset(const char* name, hid_t file_type, hid_t memory_type, std::span<const T> values) {
    const hsize_t n = values.size();
    const Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose);
    const Handle set(H5Dcreate2(file_.get(), name, file_type, space.get(), H5P_DEFAULT,
                                timeless(H5P_DATASET_CREATE).get(), H5P_DEFAULT),
                     H5Dclose);
    check(set.valid());
    check(n == 0 || H5Dwrite(set.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  }
  void attribute(const char* name, int64_t value) { attribute(name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value); }
  void attribute(const char* name, std::string_view text) {
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    std::string padded(text);
    padded.push_back('\0');
    check(H5Tset_size(type.get(), padded.size()) >= 0);
    attribute(name, type.get(), type.get(), padded.data());
  }
  void close() { check(file_.close()); }

 private:
  void attribute(const char* name, hid_t file_type, hid_t memory_type, const void* value) {
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle attribute(H5Acreate2(file_.get(), name, file_type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check(attribute.valid() && H5Awrite(attribute.get(), memory_type, value) >= 0);
  }
  void check(bool ok) {
    const int error = write_error_ != 0 ? write_error_ : errno;
    require(ok && write_error_ == 0, path_,
            fmt::format("cannot be written ({})", error != 0 ? std::strerror(error) : "HDF5 error"));
  }

  const std::string& path_;
  int write_error_ = 0;
  Handle file_;
};

std::string content_hash_of(int64_t residues, const std::string& checksums, const std::string& lengths,
                            const std::string& ids, const std::string& id_offsets) {
  return hash_hex(
      fmt::format("{} {} {} {} {} {} {}", kFormat, kFormatVersion, residues, checksums, lengths, ids, id_offsets));
}

}  // namespace

std::string write_shard(const std::string& path, const ShardContent& content) {
  std::vector<int64_t> offsets{0};
  offsets.reserve(content.lengths.size() + 1);
  for (const uint32_t length : content.lengths) offsets.push_back(offsets.back() + length);
  const int64_t residues = std::ssize(content.tokens);
  ESM_CHECK(offsets.back() == residues && content.id_offsets.size() == offsets.size(),
            "a shard of {} residues has lengths for {} and {} ids for {} sequences", residues, offsets.back(),
            content.id_offsets.size() - 1, content.lengths.size());
  std::vector<uint64_t> checksums;
  for (int64_t begin = 0; begin < residues; begin += kChunkBytes)
    checksums.push_back(
        hash64(std::as_bytes(std::span(content.tokens))
                   .subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(kChunkBytes, residues - begin)))));
  const std::string lengths_hash = hash_of(content.lengths), offsets_hash = hash_of(offsets),
                    ids_hash = hash_of(content.ids);
  const std::string id_offsets_hash = hash_of(content.id_offsets), checksums_hash = hash_of(checksums);
  const std::string content_hash = content_hash_of(residues, checksums_hash, lengths_hash, ids_hash, id_offsets_hash);

  const std::string temporary = path + ".tmp";
  try {
    {
      const auto lock = hdf5_lock();
      errno = 0;
      Writer out(temporary);
      out.attribute("format", kFormat);
      out.attribute("format_version", kFormatVersion);
      out.attribute("tokenizer", kTokenizerVersion);
      out.attribute("records", std::ssize(content.lengths));
      out.attribute("residues", residues);
      out.attribute("chunk_bytes", kChunkBytes);
      out.attribute("shard", content.shard);
      out.attribute("last", int64_t{content.last});
      out.attribute("previous_hash", content.previous_hash);
      out.attribute("inputs_hash", content.inputs_hash);
      out.attribute("content_hash", content_hash);
      out.attribute("lengths_xxh3", lengths_hash);
      out.attribute("offsets_xxh3", offsets_hash);
      out.attribute("ids_xxh3", ids_hash);
      out.attribute("id_offsets_xxh3", id_offsets_hash);
      out.attribute("checksums_xxh3", checksums_hash);
      out.dataset<uint32_t>("lengths", H5T_STD_U32LE, H5T_NATIVE_UINT32, content.lengths);
      out.dataset<int64_t>("offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets);
      out.dataset<int64_t>("id_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, content.id_offsets);
      out.dataset<uint64_t>("checksums", H5T_STD_U64LE, H5T_NATIVE_UINT64, checksums);
      out.dataset<char>("ids", H5T_STD_U8LE, H5T_NATIVE_UINT8, content.ids);
      out.dataset<uint8_t>("tokens", H5T_STD_U8LE, H5T_NATIVE_UINT8, content.tokens);
      out.close();
    }
    const FileDescriptor file(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid() || ::fsync(file.get()) != 0) fail<DataError>("cannot write {}: {}", temporary, errno_text());
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      fail<DataError>("cannot rename {} to {}: {}", temporary, path, errno_text());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  return content_hash;
}

// --- Reading ------------------------------------------------------------------------------------------------------

// The HDF5 side of opening a shard: attributes and the places of the datasets.
struct ShardFile::Hdf5View {
  explicit Hdf5View(const std::string& p, int64_t bytes)
      : path(p), file_bytes(bytes), file(H5Fopen(p.c_str(), H5F_ACC_RDONLY, file_access(nullptr).get()), H5Fclose) {
    require(file.valid(), path, "the HDF5 file is cut or damaged: HDF5 cannot open it; " + std::string(kMakeAgain));
  }

  std::string names() const {
    std::string list;
    H5G_info_t info{};
    if (H5Gget_info(file.get(), &info) < 0) return "nothing readable";
    for (hsize_t i = 0; i < info.nlinks && i < 20; ++i) {
      char name[64] = {};
      if (H5Lget_name_by_idx(file.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) > 0)
        list += (list.empty() ? "" : ", ") + std::string(name);
    }
    H5Eclear2(H5E_DEFAULT);
    return list.empty() ? "nothing" : list;
  }
  [[noreturn]] void foreign(std::string_view reason) const {
    fail<DataError>(
        "{} is not a shard of `esmtrain data prepare`: {}. Wanted: format '{}' with the datasets {}; found: {}. "
        "Give the FASTA file itself, or prepare it",
        path, reason, kFormat, kWanted, names());
  }

  // An attribute that must be there and scalar.
  Handle open_attribute(const char* name) const {
    Handle attribute(H5Aexists(file.get(), name) > 0 ? H5Aopen(file.get(), name, H5P_DEFAULT) : -1, H5Aclose);
    if (!attribute.valid()) foreign(fmt::format("the attribute '{}' is missing", name));
    const Handle space(H5Aget_space(attribute.get()), H5Sclose);
    if (H5Sget_simple_extent_npoints(space.get()) != 1)
      foreign(fmt::format("the attribute '{}' is not a single value", name));
    return attribute;
  }
  int64_t integer(const char* name) const {
    const Handle attribute = open_attribute(name);
    const Handle type(H5Aget_type(attribute.get()), H5Tclose);
    int64_t value = 0;
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0)
      foreign(fmt::format("the attribute '{}' is not an integer", name));
    return value;
  }
  std::string text(const char* name) const {
    const Handle attribute = open_attribute(name);
    const Handle type(H5Aget_type(attribute.get()), H5Tclose);
    const size_t size = H5Tget_size(type.get());
    if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 || size == 0 || size > 4096)
      foreign(fmt::format("the attribute '{}' is not a short text", name));
    std::string value(size, '\0');
    if (H5Aread(attribute.get(), type.get(), value.data()) < 0)
      foreign(fmt::format("the attribute '{}' is damaged", name));
    return value.substr(0, std::min(value.find('\0'), value.size()));
  }

  // Place of a dataset of `count` values; everything about it must be as we write it.
  Extent extent(const char* name, hid_t type, int64_t count) const {
    H5L_info_t link{};
    const bool there =
        H5Lexists(file.get(), name, H5P_DEFAULT) > 0 && H5Lget_info(file.get(), name, &link, H5P_DEFAULT) >= 0;
    // Soft and external links lead to other places, even to other files.
    if (there && link.type != H5L_TYPE_HARD) foreign(fmt::format("'{}' is a link to another place", name));
    const Handle set(there ? H5Dopen2(file.get(), name, H5P_DEFAULT) : -1, H5Dclose);
    if (!set.valid()) foreign(fmt::format("the dataset '{}' is missing or damaged", name));
    const Handle found(H5Dget_type(set.get()), H5Tclose), plist(H5Dget_create_plist(set.get()), H5Pclose);
    if (H5Tequal(found.get(), type) <= 0) foreign(fmt::format("the dataset '{}' has another element type", name));
    if (H5Pget_layout(plist.get()) != H5D_CONTIGUOUS || H5Pget_external_count(plist.get()) != 0)
      foreign(fmt::format("the dataset '{}' is not contiguous", name));
    const Handle space(H5Dget_space(set.get()), H5Sclose);  // of a virtual one this would open other files
    hsize_t n = 0;
    if (H5Sget_simple_extent_ndims(space.get()) != 1 || H5Sget_simple_extent_dims(space.get(), &n, nullptr) != 1 ||
        n != static_cast<hsize_t>(count))
      foreign(fmt::format("the dataset '{}' has {} values, not {}", name, n, count));
    if (count == 0) return {};
    const haddr_t offset = H5Dget_offset(set.get());
    const int64_t bytes = count * static_cast<int64_t>(H5Tget_size(type));
    if (offset == HADDR_UNDEF || offset > static_cast<haddr_t>(file_bytes) ||
        bytes > file_bytes - static_cast<int64_t>(offset))
      fail<DataError>("{}: the dataset '{}' ({} bytes) reaches beyond the end of the file ({} bytes): the file is cut",
                      path, name, bytes, file_bytes);
    return {static_cast<int64_t>(offset), bytes};
  }

  const std::string& path;
  int64_t file_bytes;
  Handle file;
};

void ShardFile::read_layout() {
  std::string lengths_hash, checksums_hash;
  {
    const auto lock = hdf5_lock();
    const Hdf5View view(path_, file_bytes_);
    if (H5Aexists(view.file.get(), "format") <= 0) view.foreign("it has no attribute 'format'");
    if (const std::string format = view.text("format"); format != kFormat)
      view.foreign(fmt::format("its format is '{}'", format));
    if (const int64_t version = view.integer("format_version"); version != kFormatVersion)
      fail<DataError>("{} has shard format version {}, this program reads {}: prepare the data again", path_, version,
                      kFormatVersion);
    if (const std::string made_by = view.text("tokenizer"); made_by != kTokenizerVersion)
      fail<DataError>("{} was made with tokenizer {}, this program has {}: prepare the data again", path_, made_by,
                      kTokenizerVersion);
    const int64_t records = view.integer("records");
    residues_ = view.integer("residues");
    chunk_bytes_ = view.integer("chunk_bytes");
    // Any dataset is smaller than the file, so no product below can overflow.
    if (records < 0 || records >= file_bytes_ || residues_ < 0 || residues_ > file_bytes_)
      fail<DataError>("{}: it claims {} records and {} residues in {} bytes: the file is damaged", path_, records,
                      residues_, file_bytes_);
    if (chunk_bytes_ < 4096 || chunk_bytes_ > (64 << 20)) view.foreign(fmt::format("chunk_bytes is {}", chunk_bytes_));
    shard_ = view.integer("shard");
    last_ = view.integer("last") != 0;
    previous_hash_ = view.text("previous_hash");
    inputs_hash_ = view.text("inputs_hash");
    content_hash_ = view.text("content_hash");
    lengths_hash = view.text("lengths_xxh3");
    offsets_hash_ = view.text("offsets_xxh3");
    ids_hash_ = view.text("ids_xxh3");
    id_offsets_hash_ = view.text("id_offsets_xxh3");
    checksums_hash = view.text("checksums_xxh3");
    tokens_ = view.extent("tokens", H5T_STD_U8LE, residues_);
    lengths_at_ = view.extent("lengths", H5T_STD_U32LE, records);
    offsets_ = view.extent("offsets", H5T_STD_I64LE, records + 1);
    id_offsets_ = view.extent("id_offsets", H5T_STD_I64LE, records + 1);
    int64_t id_bytes = 0;
    read_bytes(id_offsets_, records * 8, std::as_writable_bytes(std::span(&id_bytes, 1)));
    if (id_bytes < 0 || id_bytes > file_bytes_) fail<DataError>("{}: the ids are damaged", path_);
    ids_ = view.extent("ids", H5T_STD_U8LE, id_bytes);
    checksums_at_ = view.extent("checksums", H5T_STD_U64LE, (residues_ + chunk_bytes_ - 1) / chunk_bytes_);
  }
  checksums_.resize(static_cast<size_t>(checksums_at_.bytes / 8));
  read_bytes(checksums_at_, 0, std::as_writable_bytes(std::span(checksums_)));
  if (hash_of(checksums_) != checksums_hash)
    fail<DataError>("{}: the list of checksums is damaged; {}", path_, kMakeAgain);
  read_lengths(lengths_hash);
  if (content_hash_ != content_hash_of(residues_, checksums_hash, lengths_hash, ids_hash_, id_offsets_hash_))
    fail<DataError>("{}: content_hash does not fit the content; {}", path_, kMakeAgain);
}

}  // namespace esm::data
