#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/adamw.h"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 132 * 16;

__device__ float update(float p, float g, float& m, float& v, const AdamwArgs& a) {
  g *= a.grad_scale;
  p *= a.decay;
  m = a.beta1 * m + a.one_minus_beta1 * g;
  v = a.beta2 * v + a.one_minus_beta2 * (g * g);
  return p - a.step_size * m / (sqrtf(v) * a.inv_sqrt_bias2 + a.eps);
}

__global__ void adamw_kernel(AdamwArgs a) {
  const int64_t quads = a.n / 4;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < quads;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    float4 p = reinterpret_cast<float4*>(a.master)[i];
    float4 m = reinterpret_cast<float4*>(a.exp_avg)[i];
    float4 v = reinterpret_cast<float4*>(a.exp_avg_sq)[i];
    const float4 g = __ldcs(reinterpret_cast<const float4*>(a.grad) + i);
    p.x = update(p.x, g.x, m.x, v.x, a);
    p.y = update(p.y, g.y, m.y, v.y, a);
    p.z = update(p.z, g.z, m.z, v.z, a);
    p.w = update(p.w, g.w, m.w, v.w, a);
    reinterpret_cast<float4*>(a.master)[i] = p;
    reinterpret_cast<float4*>(a.exp_avg)[i] = m;
    reinterpret_cast<float4*>(a.exp_avg_sq)[i] = v;
    if (a.compute != nullptr) {
      ushort4 c;
      c.x = __bfloat16_as_ushort(__float2bfloat16_rn(p.x));
      c.y = __bfloat16_as_ushort(__float2bfloat16_rn(p.y));
      c.z = __bfloat16_as_ushort(__float2bfloat16_rn(p.z));
      c.w = __bfloat16_as_ushort(__float2bfloat16_rn(p.w));
      reinterpret_cast<ushort4*>(a.compute)[i] = c;
    }
  }
}

}  // namespace

cudaError_t launch(const AdamwArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  const int64_t blocks = std::min((args.n / 4 + kThreads - 1) / kThreads, kMaxBlocks);
  adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace esm::kernels
