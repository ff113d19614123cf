#include "checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "base/files.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
namespace {

// `what` is a whole phrase: "cannot write /runs/a/model.safetensors".
[[noreturn]] void fail_io(const std::string& what, int error) {
  errno = error;
  if (error == ENOSPC || error == EDQUOT)
    fail<DiskFullError>("{}: the disk (or the quota) is full ({})", what, errno_text());
  if (error == EFBIG) fail<DiskFullError>("{}: the limit of the file size is reached ({})", what, errno_text());
  fail<CheckpointError>("{}: {}", what, errno_text());
}

class RealFile final : public OutputFile {
 public:
  explicit RealFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
    if (!file_.valid()) fail_io("cannot make " + path_, errno);
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io("cannot write " + path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  void sync() override {
    if (::fdatasync(file_.get()) != 0) fail_io("cannot sync " + path_, errno);
  }

  // Network file systems report a full disk only here.
  void close() override {
    if (::close(file_.release()) != 0) fail_io("cannot close " + path_, errno);
  }

 private:
  std::string path_;
  FileDescriptor file_;
};

class RealFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override { return std::make_unique<RealFile>(path); }

  void make_folder(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_io("cannot make the folder " + path, error.value());
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_io(fmt::format("cannot rename {} to {}", from, to), errno);
  }

  bool exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    fail_io(fmt::format("cannot swap {} and {}", a, b), errno);
  }

  void sync_folder(const std::string& path) override {
    const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid()) fail_io("cannot open the folder " + path, errno);
    // Some network file systems cannot sync a folder and say EINVAL; nothing more can be done there.
    if (::fsync(folder.get()) != 0 && errno != EINVAL) fail_io("cannot sync the folder " + path, errno);
  }

  void remove_folder(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error == std::errc::not_a_directory) return;  // a parent has become a file: there is no such folder
    if (error) fail_io("cannot remove the folder " + path, error.value());
  }

  int64_t free_bytes(const std::string& path) override {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) fail_io("cannot ask for the free space of " + path, errno);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }
};

}  // namespace

bool path_exists(const std::string& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) fail_io("cannot look at " + path, error.value());
  return found;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) fail_io("cannot look at " + path, error.value());
  return fs::is_directory(status);
}

FileSystem& FileSystem::real() {
  static RealFileSystem instance;
  return instance;
}

}  // namespace esm::checkpoint
