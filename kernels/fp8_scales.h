// Scales of tensors in FP8, kept on the device; CPU twin: precision/amax_history.h. Rules: fp8_scale.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/fp8_scale.h"

namespace esm::kernels {

/// Ends a step of delayed scaling for all tensors in one launch: pending becomes an entry of the history, the history
/// gives the scale of the next step, pending = 0, *closed += 1. All pointers are device memory. Exact, as on the host.
/// Bytes moved: about 4 * tensors * steps.
struct CloseAmaxArgs {
  AmaxTables tables;
  const DelayedRule* rules = nullptr;  // [tensors]
  uint32_t* arrived = nullptr;         // [1], 0 between launches: blocks that are done
};
cudaError_t launch(const CloseAmaxArgs& args, cudaStream_t stream);

/// scale = tensor_scale(amax, greatest, margin, scale) and its inverse, of n tensors: scales of the moment, and the
/// first ones of delayed scaling. Device memory; scale is 0 at first.
struct MeasuredScaleArgs {
  int64_t n = 1;
  const float* amax = nullptr;
  float greatest = kMaxE4M3;  // of the format
  int margin = 0;
  float* scale = nullptr;
  float* inverse = nullptr;  // kInverseStride floats apart
};
cudaError_t launch(const MeasuredScaleArgs& args, cudaStream_t stream);

/// factors = {*a * *b, beta}, for a product of operands in NVFP4: what its sums are multiplied by, of the inverse
/// scales of both tensors, and what D before it is. Device memory.
struct ProductFactorsArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float beta = 0;
  float* factors = nullptr;  // [2]
};
cudaError_t launch(const ProductFactorsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
