// The few operations by which a checkpoint reaches the disk, as an interface: tests put in ones that fail, that are
// slow or that record, and the commit protocol can be replayed up to every prefix.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace esm::checkpoint {

/// No room (ENOSPC, EDQUOT, EFBIG), found before or while writing. What was there before is untouched.
class DiskFullError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// A file being written. Destroying it without close() gives up on it.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// fdatasync.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// Every function throws CheckpointError (DiskFullError) with path and reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// A new file; an existing one is an error.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  /// Makes `path` and its parents; no error when it is there.
  virtual void make_folder(const std::string& path) = 0;
  /// Fails when `to` exists as a file or as a folder that is not empty.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Swaps two folders in one step. False when this file system cannot do that (NFS, some Lustre versions).
  virtual bool exchange(const std::string& a, const std::string& b) = 0;
  virtual void sync_folder(const std::string& path) = 0;
  /// Removes a folder and what is in it, without following links; no error when it is not there.
  virtual void remove_folder(const std::string& path) = 0;
  virtual int64_t free_bytes(const std::string& path) = 0;

  /// The real one.
  static FileSystem& real();
};

/// Whether something is there, or a folder; links are followed. Throws CheckpointError when the file system cannot say
/// (a network file system that is away, a link that leads to itself).
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

}  // namespace esm::checkpoint
