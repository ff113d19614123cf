#include "device/memory.h"

#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "device/cuda_check.h"

namespace esm::device {

MemoryInfo device_memory() {
  size_t free = 0, total = 0;
  ESM_CUDA(cudaMemGetInfo(&free, &total));
  return {.free_bytes = static_cast<int64_t>(free), .total_bytes = static_cast<int64_t>(total)};
}

void copy_to_device(const void* from, void* to, int64_t bytes, StreamHandle stream) {
  ESM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
}

void copy_to_host(const void* from, void* to, int64_t bytes, StreamHandle stream) {
  ESM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
}

namespace {

void* allocate_device(const std::string& purpose, int64_t bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const MemoryInfo now = device_memory();
    throw OutOfMemory(
        fmt::format("out of device memory: {} ({} bytes) wanted for {}, {} of {} are free", human_bytes(bytes), bytes,
                    purpose, human_bytes(now.free_bytes), human_bytes(now.total_bytes)),
        bytes);
  }
  ESM_CUDA(status);
  return data;
}

void* allocate_pinned(const std::string& purpose, int64_t bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(fmt::format("out of page-locked host memory: {} wanted for {}", human_bytes(bytes), purpose),
                      bytes);
  }
  ESM_CUDA(status);
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

}  // namespace

DeviceBuffer::DeviceBuffer(const std::string& purpose, int64_t bytes)
    : Buffer(allocate_device(purpose, bytes), bytes, [](void* data) noexcept { cudaFree(data); }) {}

PinnedBuffer::PinnedBuffer(const std::string& purpose, int64_t bytes)
    : Buffer(allocate_pinned(purpose, bytes), bytes, [](void* data) noexcept { cudaFreeHost(data); }) {}

}  // namespace esm::device
