#include "data/cache_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "data/prepare.h"

namespace esm::data {
namespace {

// flock(2) would go on by itself after a signal: it could not be told to stop.
constexpr std::chrono::milliseconds kBetweenTries{200};

}  // namespace

FileDescriptor cache_lock(const std::string& path, const std::function<bool()>& should_stop) {
  FileDescriptor lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.valid()) return lock;
  for (bool told = false; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // no locks here
    if (!told) log::info("another process is preparing {}; waiting for it", path);
    told = true;
    if (should_stop && should_stop())
      throw PrepareStopped("stopped while another process was preparing the data; nothing was written");
    std::this_thread::sleep_for(kBetweenTries);
  }
  return lock;
}

}  // namespace esm::data
