#include "kernels/fp8_scales.h"

#include "kernels/fp8.cuh"
#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;

// A block per tensor.
__global__ void __launch_bounds__(kThreads) close_amax_kernel(CloseAmaxArgs a) {
  const AmaxTables& t = a.tables;
  const int64_t closed = *t.closed, slot = closed % t.steps, newest = (closed + t.steps - 1) % t.steps;
  float* history = t.history + blockIdx.x * t.steps;
  const float last = history[newest];
  uint32_t others = 0;
  for (int64_t i = threadIdx.x; i < t.steps; i += kThreads)
    if (i != slot) others = max(others, magnitude(history[i]));
  others = block_max<0>(others);
  if (threadIdx.x != 0) return;
  const int tensor = blockIdx.x;
  const ClosedAmax result =
      close_amax(a.rules[tensor], t.pending[tensor], __uint_as_float(others), last, t.scale[tensor]);
  history[slot] = result.entry;
  t.scale[tensor] = result.scale;
  t.inverse[kInverseStride * tensor] = result.scale > 0.0f ? inverse_power(result.scale) : 0.0f;
  if (result.counted) ++t.nonfinite[tensor];
  t.pending[tensor] = 0.0f;
  // Every block has read *closed before it arrives; the last one sets the counter back.
  __threadfence();
  if (atomicInc(a.arrived, gridDim.x - 1) == gridDim.x - 1) *t.closed = closed + 1;
}

__global__ void __launch_bounds__(kThreads) measured_scale_kernel(MeasuredScaleArgs a) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i >= a.n) return;
  const float scale = tensor_scale(a.amax[i], a.greatest, a.margin, a.scale[i]);
  a.scale[i] = scale;
  a.inverse[kInverseStride * i] = inverse_power(scale);
}

__global__ void product_factors_kernel(ProductFactorsArgs a) {
  a.factors[0] = *a.a * *a.b;
  a.factors[1] = a.beta;
}

}  // namespace

cudaError_t launch(const CloseAmaxArgs& args, cudaStream_t stream) {
  if (args.tables.tensors <= 0) return cudaSuccess;
  if (args.tables.steps <= 0 || args.rules == nullptr || args.arrived == nullptr) return cudaErrorInvalidValue;
  return start(close_amax_kernel, dim3(static_cast<unsigned>(args.tables.tensors)), dim3(kThreads), 0, stream, args);
}

cudaError_t launch(const MeasuredScaleArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  return start(measured_scale_kernel, dim3(static_cast<unsigned>(ceil_div(args.n, kThreads))), dim3(kThreads), 0,
               stream, args);
}

cudaError_t launch(const ProductFactorsArgs& args, cudaStream_t stream) {
  if (args.a == nullptr || args.b == nullptr || args.factors == nullptr) return cudaErrorInvalidValue;
  return start(product_factors_kernel, dim3(1), dim3(1), 0, stream, args);
}

}  // namespace esm::kernels
