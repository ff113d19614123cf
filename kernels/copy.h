// A plain copy, 16 bytes an access: what the memory of a device gives to kernels like ours.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// to = from, `bytes` (a multiple of 16), 16-byte aligned, not overlapping. Bytes moved: 2 * bytes.
struct CopyArgs {
  int64_t bytes = 0;
  const void* from = nullptr;
  void* to = nullptr;
};
cudaError_t launch(const CopyArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
