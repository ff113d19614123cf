// Gradient norm, clip factor and the decision to skip a step, on the device.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/update.h"

namespace esm::kernels {

/// norm = sqrt(sum of squares) / scored; factor = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1. One thread,
/// FP64. CPU twin: ops/update.h.
struct ClipArgs {
  int n_sums = 1;
  const double* sums_of_squares = nullptr;  // [n_sums], added in order
  const LossSums* losses = nullptr;
  double max_norm = 0;
  ClipResult* result = nullptr;
};
cudaError_t launch(const ClipArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
