#include <cstring>
#include <new>

#include "base/check.h"
#include "device/memory.h"

namespace esm::device {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

MemoryInfo device_memory() { fail<DeviceError>("this program was built without CUDA: it has no device memory"); }

void copy_to_device(const void*, void*, int64_t, StreamHandle) {
  fail<DeviceError>("this program was built without CUDA: it has no device memory");
}

void copy_to_host(const void*, void*, int64_t, StreamHandle) {
  fail<DeviceError>("this program was built without CUDA: it has no device memory");
}

DeviceBuffer::DeviceBuffer(const std::string& purpose, int64_t bytes) {
  fail<DeviceError>("this program was built without CUDA: no device memory for {} ({} bytes)", purpose, bytes);
}

void DeviceBuffer::reset() noexcept {}

PinnedBuffer::PinnedBuffer(const std::string& purpose, int64_t bytes) : bytes_(bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return;
  data_ = ::operator new(static_cast<size_t>(bytes), kAlignment);
  std::memset(data_, 0, static_cast<size_t>(bytes));
}

void PinnedBuffer::reset() noexcept {
  if (data_ != nullptr) ::operator delete(data_, kAlignment);
  release();
}

}  // namespace esm::device
