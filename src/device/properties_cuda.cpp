#include "device/properties.h"

#include "base/check.h"
#include "device/cuda_check.h"
#include "kernels/probe.h"

namespace esm::device {

Properties properties(int index) {
  cudaDeviceProp prop{};
  ESM_CUDA(cudaGetDeviceProperties(&prop, index));
  return {.name = prop.name,
          .sm_count = prop.multiProcessorCount,
          .compute_capability = prop.major * 10 + prop.minor,
          .l2_bytes = prop.l2CacheSize,
          .memory_bytes = static_cast<int64_t>(prop.totalGlobalMem)};
}

void use_device(int index) {
  ESM_CUDA(cudaSetDevice(index));
  const cudaError_t error = kernels::probe();
  if (error == cudaSuccess) return;
  const Properties found = properties(index);
  const int major = found.compute_capability / 10, minor = found.compute_capability % 10;
  fail<DeviceError>(
      "this program has no kernels for device {}, {} (compute capability {}.{}): {}. Build it with "
      "-DCMAKE_CUDA_ARCHITECTURES={} (8.0 is the least), or use device: cpu",
      index, found.name, major, minor, cudaGetErrorString(error), found.compute_capability);
}

}  // namespace esm::device
