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

DeviceBuffer::DeviceBuffer(const std::string& purpose, int64_t bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return;
  const cudaError_t status = cudaMalloc(&data_, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    data_ = nullptr;
    const MemoryInfo now = device_memory();
    throw OutOfMemory(
        fmt::format("out of device memory: {} ({} bytes) wanted for {}, {} of {} are free", human_bytes(bytes), bytes,
                    purpose, human_bytes(now.free_bytes), human_bytes(now.total_bytes)),
        bytes);
  }
  ESM_CUDA(status);
  bytes_ = bytes;
}

void DeviceBuffer::reset() noexcept {
  if (data_ != nullptr) cudaFree(data_);
  release();
}

PinnedBuffer::PinnedBuffer(const std::string& purpose, int64_t bytes) {
  ESM_CHECK(bytes >= 0, "{}: {} bytes", purpose, bytes);
  if (bytes == 0) return;
  const cudaError_t status = cudaHostAlloc(&data_, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    data_ = nullptr;
    throw OutOfMemory(fmt::format("out of page-locked host memory: {} wanted for {}", human_bytes(bytes), purpose),
                      bytes);
  }
  ESM_CUDA(status);
  std::memset(data_, 0, static_cast<size_t>(bytes));
  bytes_ = bytes;
}

void PinnedBuffer::reset() noexcept {
  if (data_ != nullptr) cudaFreeHost(data_);
  release();
}

}  // namespace esm::device
