// Turning a pair of elements, rounded alike in every kernel that turns.
#pragma once
#include <cuda_runtime.h>

namespace esm::kernels {

/// (p, q) -> (p cos - q sin, q cos + p sin). Which product is fused is written down, for the compiler chooses by
/// kernel.
__device__ inline void turn_pair(float& p, float& q, float cos, float sin) {
  const float first = fmaf(p, cos, -(q * sin));
  q = fmaf(q, cos, p * sin);
  p = first;
}

}  // namespace esm::kernels
