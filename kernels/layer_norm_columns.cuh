// LayerNorm backward: what a thread does with eight columns of a row, and sums over a warp.
#pragma once
#include "kernels/vector.cuh"

namespace esm::kernels {

// Eight columns of a thread.
template <class T, bool kSum>
struct Columns {
  float dgamma[8] = {}, dbeta[8] = {}, dx_sum[kSum ? 8 : 1] = {};

  // Adds a row to dgamma and dbeta; s = sums of g and of g * xhat.
  __device__ void first(const Vec8<T>& x, const Vec8<T>& dy, const float (&gamma)[8], float mean, float rstd,
                        float& sum_g, float& sum_gx) {
    float ex[8], ed[8];
    unpack(x, ex);
    unpack(dy, ed);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float xhat = standardized<T>(ex[k], mean, rstd), g = ed[k] * gamma[k];
      sum_g += g;
      sum_gx += g * xhat;
      dgamma[k] += ed[k] * xhat;
      dbeta[k] += ed[k];
    }
  }

  // dx into ex; with kOutput y into ed.
  template <bool kOutput>
  __device__ void second(const Vec8<T>& x, const Vec8<T>& dy, const Vec8<T>& residual, const float (&gamma)[8],
                         const float (&beta)[8], float mean, float rstd, float mean_g, float mean_gx, float (&ex)[8],
                         float (&ed)[8]) {
    float er[8];
    unpack(x, ex);
    unpack(dy, ed);
    unpack(residual, er);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float xhat = standardized<T>(ex[k], mean, rstd);
      const float inner = ed[k] * gamma[k] - mean_g - xhat * mean_gx;
      ex[k] = inner * rstd + er[k];
      if constexpr (kOutput) ed[k] = fmaf(xhat, gamma[k], beta[k]);
      if constexpr (kSum) dx_sum[k] += ex[k];
    }
  }
};

// kValues sums over the 32 lanes in kValues - 1 + log2(32 / kValues) exchanges: halves are traded first. The sum of
// value j ends in the lanes whose upper bits are j, where the number of upper bits is log2 kValues.
template <int kValues>
__device__ float lanes_sums(float (&v)[kValues]) {
  const int lane = threadIdx.x % 32;
  int offset = 16;
#pragma unroll
  for (int left = kValues; left > 1; left /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < left / 2; ++j) {
      const float keep = upper ? v[left / 2 + j] : v[j], give = upper ? v[j] : v[left / 2 + j];
      v[j] = keep + __shfl_xor_sync(0xffffffffu, give, offset);
    }
    offset /= 2;
  }
  float sum = v[0];
#pragma unroll
  for (int step = 16 / kValues; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

}  // namespace esm::kernels
