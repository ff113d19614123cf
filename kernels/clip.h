// Gradient norm, clip factor and the decision to skip a step, on the device.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cross_entropy.h"

namespace esm::kernels {

struct ClipResult {
  float loss = 0;        // mean over the scored rows
  float grad_norm = 0;   // of the gradient of that mean, before clipping
  float grad_scale = 0;  // factor on the gradient of the summed loss: 1 / scored, times the clip factor; 0 when skipped
  int32_t skip = 1;      // nothing scored, or loss or norm not finite
};

/// As train/step.cpp: norm = sqrt(sum of squares) / scored; factor = max_norm > 0 ? min(1, max_norm / (norm + 1e-6))
/// : 1. One thread, FP64.
struct ClipArgs {
  int n_sums = 1;
  const double* sums_of_squares = nullptr;  // [n_sums], added in order
  const LossSums* losses = nullptr;
  double max_norm = 0;
  ClipResult* result = nullptr;
};
cudaError_t launch(const ClipArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
