#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/partials.h"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

// --- factors: a block per segment ------------------------------------------------------------------------------------

constexpr int kFactorThreads = 512;

__global__ void __launch_bounds__(kFactorThreads) embedding_factors_kernel(EmbeddingFactorsArgs a) {
  const int64_t begin = a.cu_seqlens[blockIdx.x], end = a.cu_seqlens[blockIdx.x + 1];
  if (begin >= end) return;
  float factor = a.is_dummy[blockIdx.x] != 0 ? 0.0f : 1.0f;
  if (a.token_dropout && factor != 0.0f) {
    __shared__ int counts[kFactorThreads / 32];
    int masked = 0;
#pragma unroll 4
    for (int64_t t = begin + threadIdx.x; t < end; t += kFactorThreads)
      masked += a.tokens[t] == EmbeddingFactorsArgs::kMaskToken ? 1 : 0;
    masked = lanes_sum<32>(masked);
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = masked;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < kFactorThreads / 32; ++w) total += counts[w];
    const float shown = 1.0f - static_cast<float>(total) / static_cast<float>(end - begin);
    factor = total < end - begin ? static_cast<float>(1 - 0.15 * 0.8) / shown : 0.0f;
  }
#pragma unroll 4
  for (int64_t t = begin + threadIdx.x; t < end; t += kFactorThreads) {
    const uint8_t token = a.tokens[t];
    const bool hidden =
        token == EmbeddingFactorsArgs::kPadToken || (a.token_dropout && token == EmbeddingFactorsArgs::kMaskToken);
    a.factors[t] = hidden ? 0.0f : factor;
  }
}

// --- forward: a warp per row -----------------------------------------------------------------------------------------

constexpr int kForwardThreads = 256;

template <class T>
__global__ void __launch_bounds__(kForwardThreads) embedding_kernel(EmbeddingArgs a) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(kForwardThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const float factor = a.factors[row];
  const T* from = static_cast<const T*>(a.weight) + a.tokens[row] * a.cols;
  T* to = static_cast<T*>(a.y) + row * a.cols;
#pragma unroll 5
  for (int64_t c = threadIdx.x % 32 * 8; c < a.cols; c += 32 * 8) {
    float e[8] = {};
    if (factor != 0.0f) {  // not a product with 0: a weight that is not finite must not come through
      unpack(load8_shared(from + c), e);
#pragma unroll
      for (int k = 0; k < 8; ++k) e[k] *= factor;
    }
    store8(to + c, e);
  }
}

// --- backward --------------------------------------------------------------------------------------------------------

constexpr int64_t kBinBytes = 1024;                   // a token id of a warp: 32 lanes of eight FP32 columns
constexpr int64_t kSharedBytes = 3 * 33 * kBinBytes;  // 99 KiB: three warps; also the limit of the smaller devices
constexpr int kBatch = 16;                            // rows of a warp in flight

struct BackwardPlan {
  int warps;   // of a block
  int slabs;   // blocks along the columns
  int width;   // vectors of eight columns of a slab, at most 32
  int chunks;  // blocks along the rows
  int64_t chunk_rows;
};

BackwardPlan backward_plan(int64_t rows, int64_t cols, int64_t vocabulary) {
  BackwardPlan p{};
  p.warps = static_cast<int>(std::min<int64_t>(3, kSharedBytes / (vocabulary * kBinBytes)));
  p.slabs = static_cast<int>(ceil_div(cols / 8, 32));
  p.width = static_cast<int>(ceil_div(cols / 8, p.slabs));
  const int64_t wanted = std::max<int64_t>(1, 2 * kMultiprocessors / p.slabs);
  p.chunk_rows = std::max<int64_t>(ceil_div(rows, wanted), kBatch * p.warps);
  p.chunks = static_cast<int>(ceil_div(rows, p.chunk_rows));
  return p;
}

// A lane adds only to its own columns of its warp's bins: no two threads meet. Eight columns lie as two quads 512 bytes
// apart, which keeps the accesses free of bank conflicts.
template <class T>
__global__ void __launch_bounds__(96) embedding_backward_kernel(EmbeddingBackwardArgs a, BackwardPlan p) {
  extern __shared__ float4 bins[];  // [warps, vocabulary, 2, 32]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int vocabulary = static_cast<int>(a.vocabulary);
  for (int i = threadIdx.x; i < p.warps * vocabulary * 64; i += blockDim.x) bins[i] = make_float4(0, 0, 0, 0);
  __syncthreads();

  float4* mine = bins + warp * vocabulary * 64 + lane;
  const int64_t vector = blockIdx.x * static_cast<int64_t>(p.width) + lane;
  const bool has_columns = lane < p.width && 8 * vector < a.cols;
  const T* dy = static_cast<const T*>(a.dy) + 8 * vector;
  const int64_t begin = blockIdx.y * p.chunk_rows, end = min(a.rows, begin + p.chunk_rows);
  for (int64_t row0 = begin + warp * kBatch; row0 < end; row0 += p.warps * kBatch) {
    const int64_t row = row0 + lane;
    const bool in_range = lane < kBatch && row < end;
    const float factor = in_range ? a.factors[row] : 0.0f;
    const int token = in_range ? a.tokens[row] : 0;
    Vec8<T> raw[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r)
      if (__shfl_sync(0xffffffffu, factor, r) != 0.0f && has_columns) raw[r] = load8(dy + (row0 + r) * a.cols);
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      const float f = __shfl_sync(0xffffffffu, factor, r);
      float4* bin = mine + __shfl_sync(0xffffffffu, token, r) * 64;
      if (f == 0.0f || !has_columns) continue;
      float e[8];
      unpack(raw[r], e);
      float4 low = bin[0], high = bin[32];
      low.x += f * e[0];
      low.y += f * e[1];
      low.z += f * e[2];
      low.w += f * e[3];
      high.x += f * e[4];
      high.y += f * e[5];
      high.z += f * e[6];
      high.w += f * e[7];
      bin[0] = low;
      bin[32] = high;
    }
  }
  __syncthreads();

  float* partials = static_cast<float*>(a.workspace) + blockIdx.y * a.vocabulary * a.cols;
  for (int i = threadIdx.x; i < vocabulary * 64; i += blockDim.x) {
    const int token = i / 64, high = i / 32 % 2, column_lane = i % 32;
    const int64_t v = blockIdx.x * static_cast<int64_t>(p.width) + column_lane;
    if (column_lane >= p.width || 8 * v >= a.cols) continue;
    float4 sum = bins[i];
    for (int w = 1; w < p.warps; ++w) {
      const float4 other = bins[w * vocabulary * 64 + i];
      sum.x += other.x;
      sum.y += other.y;
      sum.z += other.z;
      sum.w += other.w;
    }
    store4(partials + token * a.cols + 8 * v + 4 * high, sum);
  }
}

}  // namespace

cudaError_t launch(const EmbeddingFactorsArgs& args, cudaStream_t stream) {
  if (args.segments <= 0) return cudaSuccess;
  return start(embedding_factors_kernel, dim3(static_cast<unsigned>(args.segments)), dim3(kFactorThreads), 0, stream,
               args);
}

cudaError_t launch(const EmbeddingArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (args.cols < 8 || args.cols % 8 != 0 || !aligned16(args.weight) || !aligned16(args.y))
    return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.rows, kForwardThreads / 32)));
  return with_activation(args.dtype, [&](auto type) {
    return start(embedding_kernel<typename decltype(type)::type>, grid, dim3(kForwardThreads), 0, stream, args);
  });
}

size_t embedding_backward_workspace(int64_t rows, int64_t cols, int64_t vocabulary) {
  if (rows <= 0 || cols < 8 || vocabulary < 1 || vocabulary > EmbeddingBackwardArgs::kMaxVocabulary) return 0;
  return static_cast<size_t>(backward_plan(rows, cols, vocabulary).chunks) * vocabulary * cols * sizeof(float);
}

cudaError_t launch(const EmbeddingBackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (args.cols < 8 || args.cols % 8 != 0 || args.vocabulary < 1 ||
      args.vocabulary > EmbeddingBackwardArgs::kMaxVocabulary || !aligned16(args.dy) || !aligned16(args.workspace))
    return cudaErrorInvalidValue;
  const BackwardPlan p = backward_plan(args.rows, args.cols, args.vocabulary);
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    auto* kernel = embedding_backward_kernel<typename decltype(type)::type>;
    const size_t shared = static_cast<size_t>(p.warps * args.vocabulary * kBinBytes);
    const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (raised != cudaSuccess) return raised;
    return start(kernel, dim3(p.slabs, p.chunks), dim3(32 * p.warps), shared, stream, args, p);
  });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = p.chunks,
                                .width = args.vocabulary * args.cols,
                                .outs = {args.dweight}},
                stream);
}

}  // namespace esm::kernels
