#include "kernels/weights.h"

#include "kernels/adamw_math.h"
#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) split_kernel(SplitWeightsArgs a) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i >= a.n) return;
  const float x = a.weights[i];
  a.bf16[i] = weight_bf16(x);
  if (a.remainder != nullptr) a.remainder[i] = weight_remainder(x);
}

__global__ void __launch_bounds__(kThreads) join_kernel(JoinWeightsArgs a) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i >= a.n) return;
  a.weights[i] = a.remainder != nullptr ? join_weight(a.bf16[i], a.remainder[i]) : widen_bf16(a.bf16[i]);
}

dim3 grid_of(int64_t n) { return dim3(static_cast<unsigned>(ceil_div(n, kThreads))); }

}  // namespace

cudaError_t launch(const SplitWeightsArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  return start(split_kernel, grid_of(args.n), dim3(kThreads), 0, stream, args);
}

cudaError_t launch(const JoinWeightsArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  return start(join_kernel, grid_of(args.n), dim3(kThreads), 0, stream, args);
}

}  // namespace esm::kernels
