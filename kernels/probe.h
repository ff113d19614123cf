// Whether this program holds code for a device.
#pragma once
#include <cuda_runtime_api.h>

namespace esm::kernels {

/// cudaSuccess when kernels of this program can run on the current device; cudaErrorNoKernelImageForDevice or
/// cudaErrorUnsupportedPtxVersion when it was built for other architectures. Runs nothing.
cudaError_t probe();

}  // namespace esm::kernels
