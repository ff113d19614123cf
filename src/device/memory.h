// Owners of device memory and of page-locked host memory. Allocated once, at start: nothing here belongs into a step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/handles.h"

namespace esm::device {

/// Device memory ran out. The message has what was asked for and for whom, and what is free; whoever owns a table of
/// the program's memory adds it.
class OutOfMemory : public DeviceError {
 public:
  OutOfMemory(const std::string& message, int64_t requested_bytes)
      : DeviceError(message), requested_bytes_(requested_bytes) {}
  int64_t requested_bytes() const { return requested_bytes_; }

 private:
  int64_t requested_bytes_;
};

struct MemoryInfo {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};
/// Of the current device; synchronises nothing. DeviceError in a build without CUDA.
MemoryInfo device_memory();

/// Queues a copy of `bytes` from page-locked host memory to the device.
void copy_to_device(const void* from, void* to, int64_t bytes, StreamHandle stream);

/// The other way; both return at once.
void copy_to_host(const void* from, void* to, int64_t bytes, StreamHandle stream);

/// Some memory and who frees it. Move-only.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    reset();
    swap(other);
    return *this;
  }

  void* get() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }
  void reset() noexcept {
    if (data_ != nullptr) free_(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

 protected:
  using Free = void (*)(void*) noexcept;
  Buffer(void* data, int64_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_ = nullptr;
};

/// Memory of the current device, aligned to 256 bytes, contents undefined. Freed on destruction, which waits for the
/// device.
class DeviceBuffer : public Buffer {
 public:
  DeviceBuffer() = default;
  /// `purpose` is for the error message: "GEMM workspace". Throws OutOfMemory or DeviceError.
  DeviceBuffer(const std::string& purpose, int64_t bytes);
};

/// Host memory that the device can copy from and to without a detour; zeroed. In a build without CUDA ordinary memory
/// of the same alignment (64 bytes), so that a loader has one code path.
class PinnedBuffer : public Buffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const std::string& purpose, int64_t bytes);
};

}  // namespace esm::device
