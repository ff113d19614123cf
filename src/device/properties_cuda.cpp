#include "device/properties.h"

#include "device/cuda_check.h"

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

void use_device(int index) { ESM_CUDA(cudaSetDevice(index)); }

}  // namespace esm::device
