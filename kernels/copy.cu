#include "kernels/copy.h"

#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

__global__ void __launch_bounds__(kThreads) copy_kernel(const uint4* from, uint4* to, int64_t vectors) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  uint4 v[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (first + u * kThreads < vectors) v[u] = __ldcs(from + first + u * kThreads);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (first + u * kThreads < vectors) store16(to + first + u * kThreads, v[u]);
}

}  // namespace

cudaError_t launch(const CopyArgs& args, cudaStream_t stream) {
  if (args.bytes <= 0) return cudaSuccess;
  if (args.bytes % 16 != 0 || !aligned16(args.from) || !aligned16(args.to)) return cudaErrorInvalidValue;
  const int64_t vectors = args.bytes / 16;
  return start(copy_kernel, dim3(static_cast<unsigned>(ceil_div(vectors, kThreads * kUnroll))), dim3(kThreads), 0,
               stream, static_cast<const uint4*>(args.from), static_cast<uint4*>(args.to), vectors);
}

}  // namespace esm::kernels
