#include "tests/device/sm_clock.h"

#include <cstdint>

#include "device/cuda_check.h"

namespace esm::test {
namespace {

__device__ int64_t nanoseconds() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void sm_clock_kernel(int64_t* result) {
  const int64_t begin = nanoseconds(), ticks = clock64();
  int64_t now = begin;
  while (now - begin < 100000) now = nanoseconds();
  result[0] = clock64() - ticks;
  result[1] = now - begin;
}

}  // namespace

void queue_sm_clock(const device::DeviceBuffer& scratch, cudaStream_t stream) {
  sm_clock_kernel<<<1, 1, 0, stream>>>(scratch.as<int64_t>());
  ESM_CUDA(cudaGetLastError());
}

double sm_clock_mhz(const device::DeviceBuffer& scratch, cudaStream_t stream) {
  int64_t read[2];
  ESM_CUDA(cudaMemcpyAsync(read, scratch.get(), sizeof read, cudaMemcpyDeviceToHost, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
  return 1e3 * static_cast<double>(read[0]) / static_cast<double>(read[1]);
}

}  // namespace esm::test
