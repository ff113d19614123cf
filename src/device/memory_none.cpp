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

namespace {

void* allocate_zeros(const std::string& purpose, int64_t bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return nullptr;
  void* data = ::operator new(static_cast<size_t>(bytes), kAlignment);
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

}  // namespace

PinnedBuffer::PinnedBuffer(const std::string& purpose, int64_t bytes)
    : Buffer(allocate_zeros(purpose, bytes), bytes, [](void* data) noexcept { ::operator delete(data, kAlignment); }) {}

}  // namespace esm::device
