// A library for LD_PRELOAD: files whose path holds ESM_TEST_DISK_PATH lie on a disk that is full after
// ESM_TEST_DISK_BYTES bytes, to the byte, or (ESM_TEST_DISK_SYNC) only says so when it is synced, or takes
// ESM_TEST_DISK_MS milliseconds for every write, or (ESM_TEST_DISK_NO_SWAP) cannot swap two folders, as on NFS.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

std::atomic<long long> written{0};

bool is_on_disk(int fd) {
  const char* wanted = std::getenv("ESM_TEST_DISK_PATH");
  if (wanted == nullptr) return false;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  if (n < 0) return false;
  path[n] = 0;
  return std::strstr(path, wanted) != nullptr;
}

// So many of `n` bytes fit.
size_t room_for(size_t n) {
  if (const char* ms = std::getenv("ESM_TEST_DISK_MS")) {
    const timespec pause{.tv_sec = 0, .tv_nsec = std::atoi(ms) * 1'000'000L};
    ::nanosleep(&pause, nullptr);
  }
  const char* limit = std::getenv("ESM_TEST_DISK_BYTES");
  if (limit == nullptr) return n;
  const long long left = std::max(std::atoll(limit) - written.load(), 0LL);
  const size_t fits = std::min(n, static_cast<size_t>(left));
  written += static_cast<long long>(fits);
  return fits;
}

template <class Write>
ssize_t write_what_fits(int fd, size_t n, const Write& write) {
  if (n == 0 || !is_on_disk(fd)) return write(n);
  const size_t fits = room_for(n);
  if (fits > 0) return write(fits);
  errno = ENOSPC;
  return -1;
}

int sync_or_not(int fd, long call) {
  if (std::getenv("ESM_TEST_DISK_SYNC") == nullptr || !is_on_disk(fd)) return static_cast<int>(::syscall(call, fd));
  errno = ENOSPC;
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t n) {
  return write_what_fits(fd, n, [&](size_t fits) { return ::syscall(SYS_write, fd, data, fits); });
}
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  return write_what_fits(fd, n, [&](size_t fits) { return ::syscall(SYS_pwrite64, fd, data, fits, at); });
}
ssize_t pwrite64(int fd, const void* data, size_t n, off64_t at) { return pwrite(fd, data, n, at); }
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  const char* wanted = std::getenv("ESM_TEST_DISK_PATH");
  if (flags != 0 && std::getenv("ESM_TEST_DISK_NO_SWAP") != nullptr && wanted != nullptr &&
      std::strstr(to, wanted) != nullptr) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int fdatasync(int fd) { return sync_or_not(fd, SYS_fdatasync); }
int fsync(int fd) { return sync_or_not(fd, SYS_fsync); }
}
