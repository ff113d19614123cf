// End of a kernel that follows a ColumnPlan: folds the lanes of a block and writes the chunk's partial sums.
#pragma once
#include "kernels/column_plan.h"
#include "kernels/vector.cuh"

namespace esm::kernels {

/// Of eight columns from `column` on; -1: this thread has none. All threads of the block take part. partials:
/// [row_chunks, cols].
__device__ inline void write_partials_at(const ColumnPlan& plan, int64_t cols, int64_t column, float (&sums)[8],
                                         float* partials) {
  __shared__ float folded[256 * 8];
  const int x = threadIdx.x % plan.width, lane = threadIdx.x / plan.width;
  if (plan.lanes > 1) {
    __syncthreads();  // of an earlier call
    if (lane < plan.lanes)
#pragma unroll
      for (int k = 0; k < 8; ++k) folded[8 * threadIdx.x + k] = sums[k];
    __syncthreads();
    if (lane == 0)
      for (int l = 1; l < plan.lanes; ++l)
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[k] += folded[8 * (l * plan.width + x) + k];
  }
  if (lane == 0 && column >= 0) store8(partials + blockIdx.y * cols + column, sums);
}

/// Of the columns that the plan gives to this thread.
__device__ inline void write_column_partials(const ColumnPlan& plan, int64_t cols, float (&sums)[8], float* partials) {
  const int64_t column = 8 * (blockIdx.x * static_cast<int64_t>(plan.width) + threadIdx.x % plan.width);
  write_partials_at(plan, cols, column < cols ? column : -1, sums, partials);
}

}  // namespace esm::kernels
