#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/check.h"
#include "base/log.h"

namespace esm::train {

RunFolder::RunFolder(const std::string& path) : path_(path) {
  make_folders(path);
  const std::string lock = path + "/.lock";
  lock_ = FileDescriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.valid()) fail<DataError>("cannot write to the run folder {}: {}", path, errno_text());
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK)
    fail<ConfigError>("another esmtrain is running in {} (it holds {}); wait for it, or give this run its own run.dir",
                      path, lock);
  // Some network file systems know no locks; a run there is not guarded, and says so.
  log::warn("cannot lock {} ({}): take care that no second run uses this folder", lock, errno_text());
}

bool RunFolder::is_in_place() const {
  struct stat held {
  }, there{};
  return ::fstat(lock_.get(), &held) == 0 && ::stat((path_ + "/.lock").c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

}  // namespace esm::train
