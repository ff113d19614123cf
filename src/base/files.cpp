#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace esm {
namespace fs = std::filesystem;

std::string errno_text() { return std::strerror(errno); }

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: a pipe under this name must not make us wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) fail<DataError>("cannot open {}: {}", path, errno_text());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail<DataError>("cannot read {}: {}", path, errno_text());
  if (!S_ISREG(info.st_mode)) fail<DataError>("{} is not a regular file", path);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail<DataError>("cannot map {}: {}", path, errno_text());
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) fail<DataError>("cannot open {}: {}", path, errno_text());
  std::string content;
  char buffer[1 << 16];
  ssize_t n = 0;
  while ((n = ::read(file.get(), buffer, sizeof buffer)) > 0) content.append(buffer, static_cast<size_t>(n));
  if (n < 0) fail<DataError>("cannot read {}: {}", path, errno_text());
  return content;
}

namespace {

void write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail<DataError>("cannot write {}: {}", path, errno_text());
    content.remove_prefix(static_cast<size_t>(n));
  }
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  try {
    FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.valid()) fail<DataError>("cannot write {}: {}", path, errno_text());
    write_all(file.get(), content, path);
    if (::fsync(file.get()) != 0 || ::close(file.release()) != 0)
      fail<DataError>("cannot write {}: {}", path, errno_text());
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      fail<DataError>("cannot rename {} to {}: {}", temporary, path, errno_text());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(parent_of(path));
}

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail<DataError>("cannot make the folder {}: {}", path, error.message());
}

void sync_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) fail<DataError>("cannot open the folder {}: {}", path, errno_text());
  // Some network file systems cannot sync a folder and say EINVAL; nothing more can be done there.
  if (::fsync(folder.get()) != 0 && errno != EINVAL)
    fail<DataError>("cannot sync the folder {}: {}", path, errno_text());
}

FileAppender::FileAppender(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_.valid()) fail<DataError>("cannot write {}: {}", path, errno_text());
}

void FileAppender::append(std::string_view bytes) {
  waiting_ += bytes;
  flush();
}

void FileAppender::flush() {
  if (waiting_.empty()) return;
  struct stat before {};
  const bool known = ::fstat(file_.get(), &before) == 0 && S_ISREG(before.st_mode);
  try {
    write_all(file_.get(), waiting_, path_);
  } catch (const DataError&) {
    // What was written of it would stand twice. To make a file shorter needs no room.
    [[maybe_unused]] const int ignored = known ? ::ftruncate(file_.get(), before.st_size) : 0;
    throw;
  }
  waiting_.clear();
}

ScratchFolder::ScratchFolder(std::string_view prefix) {
  path_ = (fs::temp_directory_path() / fmt::format("{}.XXXXXX", prefix)).string();
  if (::mkdtemp(path_.data()) == nullptr) fail<DataError>("cannot make a temporary folder {}: {}", path_, errno_text());
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace esm
