// End of a kernel that follows a ColumnPlan: folds the lanes of a block and writes the chunk's partial sums.
#pragma once
#include "kernels/column_plan.h"
#include "kernels/vector.cuh"

namespace esm::kernels {

/// All threads of the block take part. partials: [row_chunks, cols].
__device__ inline void write_column_partials(const ColumnPlan& plan, int64_t cols, float (&sums)[8], float* partials) {
  __shared__ float folded[256 * 8];
  const int x = threadIdx.x % plan.width, lane = threadIdx.x / plan.width;
  const int64_t vector = blockIdx.x * static_cast<int64_t>(plan.width) + x;
  if (plan.lanes > 1) {
    if (lane < plan.lanes)
#pragma unroll
      for (int k = 0; k < 8; ++k) folded[8 * threadIdx.x + k] = sums[k];
    __syncthreads();
    if (lane == 0)
      for (int l = 1; l < plan.lanes; ++l)
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[k] += folded[8 * (l * plan.width + x) + k];
  }
  if (lane == 0 && 8 * vector < cols) store8(partials + blockIdx.y * cols + 8 * vector, sums);
}

}  // namespace esm::kernels
