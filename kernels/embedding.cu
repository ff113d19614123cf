#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/launch.cuh"
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
//
// A block has some rows of 256 columns. It puts its rows in the order of their tokens first, so that a warp can walk
// over its share of them with the sum in registers: adding to bins in memory row by row would wait for them every time.
// While it sorts, its first rows come to the L2 cache.

constexpr int kWarps = 20;
constexpr int kPasses = 8;  // of 32 rows, of a warp that sorts
constexpr int kVocabulary = EmbeddingBackwardArgs::kMaxVocabulary;
constexpr int64_t kBinBytes = 1024;         // 256 FP32 columns
constexpr int64_t kSharedBytes = 99 << 10;  // the limit of the smaller devices
constexpr uint32_t kAllLanes = 0xffffffffu;

struct BackwardPlan {
  int slabs;   // blocks along the columns
  int width;   // vectors of eight columns of a slab, at most 32
  int chunks;  // blocks along the rows
  int64_t chunk_rows;
  int64_t shared_bytes;
};

BackwardPlan backward_plan(int64_t rows, int64_t cols, int64_t vocabulary) {
  BackwardPlan p{};
  p.slabs = static_cast<int>(ceil_div(cols / 8, 32));
  p.width = static_cast<int>(ceil_div(cols / 8, p.slabs));
  const int64_t fixed = (vocabulary + kWarps) * kBinBytes + kWarps * vocabulary * 4;
  const int64_t most = std::min<int64_t>((kSharedBytes - fixed - 1024) / 8, 32 * kWarps * kPasses);
  const int64_t wanted = std::max<int64_t>(1, kMultiprocessors / p.slabs);
  p.chunk_rows = std::min(std::max<int64_t>(ceil_div(rows, wanted), 32 * kWarps), most);
  p.chunks = static_cast<int>(ceil_div(rows, p.chunk_rows));
  p.shared_bytes = fixed + p.chunk_rows * 8;
  return p;
}

// What a lane knows of its rows: `each` neighbouring passes of 32 rows belong to a warp.
struct LaneRows {
  float factor[kPasses];
  int token[kPasses];  // -1: left out
  int place[kPasses];  // among the rows of the warp with this token

  __device__ void load(const EmbeddingBackwardArgs& a, int64_t first, int64_t last, int each) {
    uint8_t tokens[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const int64_t row = first + 32 * p + threadIdx.x % 32;
      const bool valid = p < each && row < last;
      factor[p] = valid ? a.factors[row] : 0.0f;
      tokens[p] = valid ? a.tokens[row] : 0;
    }
#pragma unroll
    for (int p = 0; p < kPasses; ++p) token[p] = factor[p] != 0.0f ? tokens[p] : -1;
  }

  // Counts the warp's rows of each token in `counts`.
  __device__ void count(int* counts, int each) {
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      if (p >= each) break;
      const uint32_t peers = __match_any_sync(kAllLanes, token[p]), before = peers & ((1u << threadIdx.x % 32) - 1);
      const int seen = token[p] >= 0 ? counts[token[p]] : 0;
      place[p] = seen + __popc(before);
      __syncwarp();
      if (token[p] >= 0 && before == 0) counts[token[p]] = seen + __popc(peers);
      __syncwarp();
    }
  }
};

__device__ inline void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Eight columns of a lane lie as two quads 512 bytes apart, which keeps the accesses free of bank conflicts.
template <class T>
__global__ void __launch_bounds__(32 * kWarps, 1) embedding_backward_kernel(EmbeddingBackwardArgs a, BackwardPlan p) {
  constexpr int kBatch = sizeof(T) == 2 ? 8 : 4;       // rows of a warp in flight
  constexpr int kPrefetched = sizeof(T) == 2 ? 8 : 4;  // rows of a warp
  extern __shared__ float4 bins[];                     // [vocabulary, 2, 32]
  __shared__ int totals[kVocabulary], starts[kVocabulary + 1];
  __shared__ int head_tokens[kWarps];
  const int vocabulary = static_cast<int>(a.vocabulary);
  float4* heads = bins + vocabulary * 64;                         // [warps, 2, 32]: sum of a warp's first token
  uint2* sorted = reinterpret_cast<uint2*>(heads + kWarps * 64);  // [chunk_rows]: factor; row << 8 | token
  int* places = reinterpret_cast<int*>(sorted + p.chunk_rows);    // [warps, vocabulary]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int* my_places = places + warp * vocabulary;
  const int64_t begin = blockIdx.y * p.chunk_rows, end = min(a.rows, begin + p.chunk_rows);
  const int64_t vector = blockIdx.x * static_cast<int64_t>(p.width) + lane;
  const bool has_columns = lane < p.width && 8 * vector < a.cols;
  const T* dy = static_cast<const T*>(a.dy) + begin * a.cols + 8 * vector;

  const int each = static_cast<int>((end - begin + 32 * kWarps - 1) / (32 * kWarps));
  const int64_t warp_begin = begin + warp * each * 32;
  LaneRows lane_rows;
  lane_rows.load(a, warp_begin, min(end, warp_begin + each * 32), each);
  if (has_columns && lane % (16 / sizeof(T)) == 0)  // a line of 128 bytes each
#pragma unroll
    for (int r = 0; r < kPrefetched; ++r)
      if (begin + r * kWarps + warp < end) prefetch(dy + (r * kWarps + warp) * a.cols);
  for (int i = threadIdx.x; i < vocabulary * 64; i += blockDim.x) bins[i] = make_float4(0, 0, 0, 0);
  for (int i = lane; i < vocabulary; i += 32) my_places[i] = 0;
  __syncwarp();
  lane_rows.count(my_places, each);
  __syncthreads();
  if (threadIdx.x < kVocabulary) {  // counts of the warps to places behind the start of the token
    int sum = 0;
    if (threadIdx.x < vocabulary) {
      int counts[kWarps];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) counts[w] = places[w * vocabulary + threadIdx.x];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        places[w * vocabulary + threadIdx.x] = sum;
        sum += counts[w];
      }
    }
    totals[threadIdx.x] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int before = 0;
#pragma unroll
    for (int half = 0; half < kVocabulary / 32; ++half) {
      int sum = totals[32 * half + lane];
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step) sum += other;
      }
      starts[32 * half + lane + 1] = before + sum;
      before += __shfl_sync(kAllLanes, sum, 31);
    }
    if (lane == 0) starts[0] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (pass >= each) break;
    const int t = lane_rows.token[pass];
    if (t < 0) continue;
    const uint32_t row = static_cast<uint32_t>(warp_begin - begin) + 32 * pass + lane;
    sorted[starts[t] + my_places[t] + lane_rows.place[pass]] =
        make_uint2(__float_as_uint(lane_rows.factor[pass]), row << 8 | static_cast<uint32_t>(t));
  }
  if (lane == 0) head_tokens[warp] = -1;
  __syncthreads();

  const int listed = starts[kVocabulary];
  const int first = listed * warp / kWarps, last = listed * (warp + 1) / kWarps;
  int token = -1;
  bool is_head = true;
  float sums[8] = {};
  // Only the warp with a token's first row can meet it as another than its first token: no two warps meet in a bin.
  const auto flush = [&] {
    if (token < 0) return;
    float4* to = (is_head ? heads + warp * 64 : bins + token * 64) + lane;
    to[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    to[32] = make_float4(sums[4], sums[5], sums[6], sums[7]);
    if (is_head && lane == 0) head_tokens[warp] = token;
    is_head = false;
#pragma unroll
    for (int k = 0; k < 8; ++k) sums[k] = 0;
  };
  for (int i = first; i < last; i += kBatch) {
    Vec8<T> raw[kBatch];
    uint2 entry[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      entry[r] = sorted[min(i + r, last - 1)];
      raw[r] = has_columns && i + r < last ? load8(dy + (entry[r].y >> 8) * a.cols) : zero8<T>();
    }
#pragma unroll
    for (int r = 0; r < kBatch; ++r) {
      if (i + r >= last) break;
      if (const int next = static_cast<int>(entry[r].y & 255); next != token) {
        flush();
        token = next;
      }
      float e[8];
      unpack(raw[r], e);
#pragma unroll
      for (int k = 0; k < 8; ++k) sums[k] += __uint_as_float(entry[r].x) * e[k];
    }
  }
  flush();
  __syncthreads();

  if (threadIdx.x < 64)
    for (int w = 0; w < kWarps; ++w) {
      if (head_tokens[w] < 0) continue;
      float4& bin = bins[head_tokens[w] * 64 + threadIdx.x];
      const float4 head = heads[w * 64 + threadIdx.x];
      bin = make_float4(bin.x + head.x, bin.y + head.y, bin.z + head.z, bin.w + head.w);
    }
  __syncthreads();
  float* partials = static_cast<float*>(a.workspace) + blockIdx.y * a.vocabulary * a.cols;
  for (int i = threadIdx.x; i < vocabulary * 64; i += blockDim.x) {
    const int of_token = i / 64, high = i / 32 % 2, column_lane = i % 32;
    const int64_t v = blockIdx.x * static_cast<int64_t>(p.width) + column_lane;
    if (column_lane < p.width && 8 * v < a.cols) store4(partials + of_token * a.cols + 8 * v + 4 * high, bins[i]);
  }
}

// The chunks' sums of four neighbouring columns: each of kLanes threads every kLanes-th chunk, then these in order. (A
// few partial sums of a wide row; AddPartialsArgs is made for many.)
constexpr int kAddThreads = 256, kAddLanes = 4, kAddColumns = kAddThreads / kAddLanes;

__global__ void __launch_bounds__(kAddThreads)
    add_chunks_kernel(const float4* partials, float* to, int chunks, int64_t vectors) {
  __shared__ float4 sums[kAddLanes][kAddColumns];
  const int column = threadIdx.x % kAddColumns, lane = threadIdx.x / kAddColumns;
  const int64_t at = blockIdx.x * static_cast<int64_t>(kAddColumns) + column;
  float4 sum = make_float4(0, 0, 0, 0);
  const auto add = [&](const float4& v) { sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w); };
  if (at < vectors) {
#pragma unroll 8
    for (int chunk = lane; chunk < chunks; chunk += kAddLanes) add(__ldcs(partials + chunk * vectors + at));
  }
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || at >= vectors) return;
#pragma unroll
  for (int l = 1; l < kAddLanes; ++l) add(sums[l][column]);
  to += 4 * at;
  to[0] += sum.x;
  to[1] += sum.y;
  to[2] += sum.z;
  to[3] += sum.w;
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
    const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(p.shared_bytes));
    if (raised != cudaSuccess) return raised;
    return start(kernel, dim3(p.slabs, p.chunks), dim3(32 * kWarps), static_cast<size_t>(p.shared_bytes), stream, args,
                 p);
  });
  if (error != cudaSuccess) return error;
  const int64_t vectors = args.vocabulary * args.cols / 4;
  return start(add_chunks_kernel, dim3(static_cast<unsigned>(ceil_div(vectors, kAddColumns))), dim3(kAddThreads), 0,
               stream, static_cast<const float4*>(args.workspace), args.dweight, p.chunks, vectors);
}

}  // namespace esm::kernels
