// Between FP32 weights and their halves; CPU twin: ops/weights.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// bf16 = weights to nearest, ties away from 0; remainder, unless null, the low 16 bits: together exactly the weights.
/// Device memory of n elements. Bytes moved per element: 8 (6 without remainder).
struct SplitWeightsArgs {
  int64_t n = 0;
  const float* weights = nullptr;
  uint16_t* bf16 = nullptr;
  uint16_t* remainder = nullptr;
};
cudaError_t launch(const SplitWeightsArgs& args, cudaStream_t stream);

/// The inverse; remainder null: weights = bf16.
struct JoinWeightsArgs {
  int64_t n = 0;
  const uint16_t* bf16 = nullptr;
  const uint16_t* remainder = nullptr;
  float* weights = nullptr;
};
cudaError_t launch(const JoinWeightsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
