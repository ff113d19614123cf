#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/files.h"
#include "fuzz/targets.h"

namespace esm::fuzz {

MemoryFile::MemoryFile(std::string_view bytes)
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", fd_)) {
  ESM_CHECK(fd_ >= 0, "no file in memory: {}", errno_text());
  const bool written = ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  ESM_CHECK(written, "cannot fill a file in memory: {}", errno_text());
}

MemoryFile::~MemoryFile() { ::close(fd_); }

}  // namespace esm::fuzz
