#include "kernels/fp8_counts.h"

#include "kernels/fp8.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4, kBlocks = 8 * kMultiprocessors;

/// Sum over the block, in thread 0. Each call of a kernel has a kCall of its own.
template <int kCall, class T>
__device__ T block_sum(T value) {
  __shared__ T warps[kThreads / 32];
  value = lanes_sum<32>(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += warps[w];
  return sum;
}

/// Bytes of a word that are 0xff, the others being 0.
__device__ uint32_t count_bytes(uint32_t mask) { return __popc(mask & 0x01010101u); }

template <uint32_t kEnd>
__global__ void __launch_bounds__(kThreads) fp8_counts_kernel(Fp8CountsArgs a) {
  const int64_t vectors = counted_rows(a.rows, a.row_count) * a.cols / 16, stride = kBlocks * kThreads;
  const uint4* x = reinterpret_cast<const uint4*>(a.x);
  unsigned long long zeros = 0, ends = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < vectors; i += kUnroll * stride) {
    uint4 raw[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)  // a code that is neither
      raw[u] = i + u * stride < vectors ? __ldcs(x + i + u * stride)
                                        : make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u);
    uint32_t of_zeros = 0, of_ends = 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (const uint32_t word : {raw[u].x, raw[u].y, raw[u].z, raw[u].w}) {
        const uint32_t magnitudes = word & 0x7f7f7f7fu;
        of_zeros += count_bytes(__vcmpeq4(magnitudes, 0u));
        of_ends += count_bytes(__vcmpgeu4(magnitudes, kEnd * 0x01010101u));
      }
    zeros += of_zeros;
    ends += of_ends;
  }
  zeros = block_sum<0>(zeros);
  ends = block_sum<1>(ends);
  if (threadIdx.x != 0) return;
  unsigned long long* counts = reinterpret_cast<unsigned long long*>(a.counts);
  if (zeros != 0) atomicAdd(counts, zeros);
  if (ends != 0) atomicAdd(counts + 1, ends);
}

__global__ void __launch_bounds__(kThreads) moments_kernel(MomentsArgs a) {
  const int64_t vectors = counted_rows(a.rows, a.row_count) * a.cols / 8, stride = kBlocks * kThreads;
  const Bf16* x = static_cast<const Bf16*>(a.x);
  double sum = 0, squares = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < vectors; i += kUnroll * stride) {
    Vec8<Bf16> raw[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      raw[u] = i + u * stride < vectors ? load8(x + 8 * (i + u * stride)) : zero8<Bf16>();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float e[8];
      unpack(raw[u], e);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const double value = e[k];
        sum += value;
        squares += value * value;
      }
    }
  }
  sum = block_sum<0>(sum);
  squares = block_sum<1>(squares);
  if (threadIdx.x == 0) static_cast<double2*>(a.workspace)[blockIdx.x] = make_double2(sum, squares);
}

__global__ void __launch_bounds__(kThreads) finish_moments_kernel(const double2* partials, double* moments) {
  double sum = 0, squares = 0;
  for (int i = threadIdx.x; i < kBlocks; i += kThreads) {
    sum += partials[i].x;
    squares += partials[i].y;
  }
  sum = block_sum<0>(sum);
  squares = block_sum<1>(squares);
  if (threadIdx.x != 0) return;
  moments[0] = sum;
  moments[1] = squares;
}

}  // namespace

cudaError_t launch(const Fp8CountsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 16 != 0 || !aligned16(args.x) || args.counts == nullptr) return cudaErrorInvalidValue;
  return with_fp8(args.dtype, [&](auto type) {
    constexpr uint32_t kEnd = decltype(type)::value == DType::kF8E4M3 ? 0x7eu : 0x7bu;  // the greatest finite code
    return start(fp8_counts_kernel<kEnd>, dim3(kBlocks), dim3(kThreads), 0, stream, args);
  });
}

size_t moments_workspace() { return kBlocks * sizeof(double2); }

cudaError_t launch(const MomentsArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.cols < 0 || args.cols % 8 != 0 || !aligned16(args.x) || args.moments == nullptr ||
      args.workspace == nullptr || !aligned16(args.workspace))
    return cudaErrorInvalidValue;
  const cudaError_t error = start(moments_kernel, dim3(kBlocks), dim3(kThreads), 0, stream, args);
  if (error != cudaSuccess) return error;
  return start(finish_moments_kernel, dim3(1), dim3(kThreads), 0, stream, static_cast<const double2*>(args.workspace),
               args.moments);
}

}  // namespace esm::kernels
