// Files and folders: crash-safe writing, whole-file reading, scratch folders. Every failure names the path and the
// system's reason.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace esm {

/// Owner of a POSIX file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    reset();
    fd_ = other.release();
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();

 private:
  int fd_ = -1;
};

/// A file mapped for reading. Throws DataError.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Whole content. Throws DataError.
std::string read_text_file(const std::string& path);

/// Writes `content` so that `path` is either the old file or the whole new one, even after a crash: temporary file
/// beside it, fsync, rename, fsync of the folder. Throws DataError.
void write_file_atomically(const std::string& path, std::string_view content);

/// Makes `path` and its parents; no error when it is there already. Throws DataError.
void make_folders(const std::string& path);

/// fsync of a folder, so that renames and new names inside it survive a crash. Throws DataError.
void sync_folder(const std::string& path);

/// Appends records to a file; each append() reaches the kernel at once (a killed process loses nothing that was
/// appended). Throws DataError.
class FileAppender {
 public:
  explicit FileAppender(const std::string& path);
  /// After an error (DataError) nothing of `bytes` is in the file; they wait for the next call.
  void append(std::string_view bytes);
  /// Tries again to write what waits. Throws DataError.
  void flush();

 private:
  std::string path_;
  FileDescriptor file_;
  std::string waiting_;
};

/// The same for lines.
class LineAppender {
 public:
  explicit LineAppender(const std::string& path) : file_(path) {}
  /// `line` without a newline.
  void append(std::string_view line) { file_.append(std::string(line) + "\n"); }
  void flush() { file_.flush(); }

 private:
  FileAppender file_;
};

/// A new, empty folder below the system's place for temporary files, removed with its content by the destructor.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string_view prefix);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Text of the current errno.
std::string errno_text();

}  // namespace esm
