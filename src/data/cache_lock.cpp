#include "data/cache_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace esm::data {

FileDescriptor cache_lock(const std::string& path) {
  FileDescriptor lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  while (lock.valid() && ::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

}  // namespace esm::data
