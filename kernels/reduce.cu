#include "kernels/reduce.h"

#include <algorithm>

#include "kernels/column_sums.cuh"
#include "kernels/launch.cuh"
#include "kernels/partials.h"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSquareBlocks = 8 * kMultiprocessors;

// Sum over the block, in thread 0.
__device__ double block_sum(double value) {
  __shared__ double warps[kThreads / 32];
  value = lanes_sum<32>(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += warps[w];
  return sum;
}

__device__ double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

__global__ void __launch_bounds__(kThreads) sum_of_squares_kernel(const __grid_constant__ SumOfSquaresArgs a) {
  constexpr int kUnroll = 4;
  double sums[kUnroll] = {};
  for (int b = 0; b < a.n_buffers; ++b) {
    const float4* x = reinterpret_cast<const float4*>(a.buffers[b]);
    const int64_t quads = a.sizes[b] / 4, stride = static_cast<int64_t>(gridDim.x) * kThreads;
    // Each buffer starts at another block: the ones that get one round more than the rest are not always the same.
    const int64_t block = (blockIdx.x + 331 * b) % gridDim.x;
    for (int64_t i = block * kThreads + threadIdx.x; i < quads; i += kUnroll * stride) {
      float4 v[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        v[u] = i + u * stride < quads ? __ldcs(x + i + u * stride) : make_float4(0, 0, 0, 0);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        sums[u] += (square(v[u].x) + square(v[u].y)) + (square(v[u].z) + square(v[u].w));
    }
  }
  const double sum = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (threadIdx.x == 0) static_cast<double*>(a.workspace)[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) sum_finish_kernel(const double* partials, int count, double* sum) {
  double mine = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) mine += partials[i];
  const double all = block_sum(mine);
  if (threadIdx.x == 0) *sum = all;
}

constexpr int64_t kColumnThreads = 1536;  // that a multiprocessor holds at 40 registers a thread

template <class T>
__global__ void __launch_bounds__(kThreads, 6) column_sum_kernel(ColumnSumArgs a, ColumnPlan plan) {
  constexpr int kRows = sizeof(T) == 2 ? 4 : 2;  // in flight
  const int lane = threadIdx.x / plan.width;
  const int64_t vector = blockIdx.x * static_cast<int64_t>(plan.width) + threadIdx.x % plan.width;
  float sums[8] = {};
  if (lane < plan.lanes && 8 * vector < a.cols) {
    const int64_t end = min(a.rows, (blockIdx.y + 1) * plan.chunk_rows);
    const T* x = static_cast<const T*>(a.x) + 8 * vector;
    for (int64_t row = blockIdx.y * plan.chunk_rows + lane; row < end; row += kRows * plan.lanes) {
      Vec8<T> raw[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        raw[r] = row + r * plan.lanes < end ? load8(x + (row + r * plan.lanes) * a.cols) : zero8<T>();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float e[8];
        unpack(raw[r], e);
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[k] += e[k];
      }
    }
  }
  write_column_partials(plan, a.cols, sums, static_cast<float*>(a.workspace));
}

__device__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

__global__ void __launch_bounds__(kThreads) first_nonfinite_kernel(const __grid_constant__ FirstNonfiniteArgs a) {
  if (*a.wanted == 0) return;
  uint64_t first = kAllFinite;
  for (int b = 0; b < a.n_buffers && first == kAllFinite; ++b) {
    const float4* x = reinterpret_cast<const float4*>(a.buffers[b]);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
         i < a.sizes[b] / 4 && first == kAllFinite; i += stride) {
      const float4 v = __ldcs(x + i);
      const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 3; k >= 0; --k)
        if (!finite(values[k])) first = static_cast<uint64_t>(a.first_buffer + b) << kBufferShift | (4 * i + k);
    }
  }
  if (first != kAllFinite)
    atomicMin(reinterpret_cast<unsigned long long*>(a.first), static_cast<unsigned long long>(first));
}

}  // namespace

size_t sum_of_squares_workspace() { return kSquareBlocks * sizeof(double); }

cudaError_t launch(const SumOfSquaresArgs& args, cudaStream_t stream) {
  if (args.n_buffers < 0 || args.n_buffers > SumOfSquaresArgs::kMaxBuffers) return cudaErrorInvalidValue;
  for (int b = 0; b < args.n_buffers; ++b)
    if (args.sizes[b] < 0 || args.sizes[b] % 4 != 0 || !aligned16(args.buffers[b])) return cudaErrorInvalidValue;
  const cudaError_t error = start(sum_of_squares_kernel, dim3(kSquareBlocks), dim3(kThreads), 0, stream, args);
  if (error != cudaSuccess) return error;
  return start(sum_finish_kernel, dim3(1), dim3(kThreads), 0, stream, static_cast<const double*>(args.workspace),
               kSquareBlocks, args.sum);
}

size_t column_sum_workspace(int64_t rows, int64_t cols) {
  return rows <= 0 || cols < 8 ? 0 : column_partials_bytes(column_plan(rows, cols, kColumnThreads), cols);
}

cudaError_t launch(const ColumnSumArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 8 != 0 || !aligned16(args.x) || !aligned16(args.workspace)) return cudaErrorInvalidValue;
  const ColumnPlan plan = column_plan(args.rows, args.cols, kColumnThreads);
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    return start(column_sum_kernel<typename decltype(type)::type>, dim3(plan.column_blocks, plan.row_chunks),
                 dim3(plan.threads), 0, stream, args, plan);
  });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = plan.row_chunks,
                                .width = args.cols,
                                .outs = {args.sum}},
                stream);
}

cudaError_t launch(const FirstNonfiniteArgs& args, cudaStream_t stream) {
  if (args.n_buffers < 0 || args.n_buffers > FirstNonfiniteArgs::kMaxBuffers) return cudaErrorInvalidValue;
  for (int b = 0; b < args.n_buffers; ++b)
    if (args.sizes[b] < 0 || args.sizes[b] % 4 != 0 || !aligned16(args.buffers[b])) return cudaErrorInvalidValue;
  return start(first_nonfinite_kernel, dim3(8 * kMultiprocessors), dim3(kThreads), 0, stream, args);
}

}  // namespace esm::kernels
