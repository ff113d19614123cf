// Launching with the grid as values, so that a launch returns its own error, and choosing the element type.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/grid.h"

namespace esm::kernels {

using Bf16 = __nv_bfloat16;

template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                  const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

/// Calls body(std::type_identity<T>{}) with T = float or Bf16; other types are an invalid value.
template <class Body>
cudaError_t with_activation(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) return body(std::type_identity<Bf16>{});
  if (dtype == DType::kF32) return body(std::type_identity<float>{});
  return cudaErrorInvalidValue;
}

inline bool aligned16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace esm::kernels
