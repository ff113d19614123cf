#include "kernels/rotary.h"

#include "kernels/column_sums.cuh"
#include "kernels/launch.cuh"
#include "kernels/partials.h"
#include "kernels/reduce.h"
#include "kernels/rotary_math.cuh"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kUnroll = 5;  // pairs of vectors of a lane in flight: 40 heads of 64 are one round

// kWidth consecutive elements as FP32: 8 in 16-byte accesses, 4 in 8-byte accesses of BF16 (head dims 24, 40, ...).
template <class T, int kWidth>
struct Chunk;
template <class T>
struct Chunk<T, 8> {
  Vec8<T> raw;
  __device__ void load(const T* p) { raw = load8(p); }
  __device__ void get(float (&v)[8]) const { unpack(raw, v); }
  static __device__ void put(T* p, const float (&v)[8]) { store8(p, v); }
};
template <>
struct Chunk<Bf16, 4> {
  uint2 raw;
  __device__ void load(const Bf16* p) { raw = __ldcs(reinterpret_cast<const uint2*>(p)); }
  __device__ void get(float (&v)[4]) const {
    v[0] = bf16_low(raw.x);
    v[1] = bf16_high(raw.x);
    v[2] = bf16_low(raw.y);
    v[3] = bf16_high(raw.y);
  }
  static __device__ void put(Bf16* p, const float (&v)[4]) {
    store8_bytes(p, make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3])));
  }
};
template <>
struct Chunk<float, 4> {
  float4 raw;
  __device__ void load(const float* p) { raw = __ldcs(reinterpret_cast<const float4*>(p)); }
  __device__ void get(float (&v)[4]) const {
    v[0] = raw.x;
    v[1] = raw.y;
    v[2] = raw.z;
    v[3] = raw.w;
  }
  static __device__ void put(float* p, const float (&v)[4]) { store4(p, make_float4(v[0], v[1], v[2], v[3])); }
};

// A warp takes a token. q and k are 2 * heads heads in a row; a lane keeps its cosines and sines and walks over them.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) rotary_kernel(RotaryArgs a) {
  const int64_t token = blockIdx.x * static_cast<int64_t>(kThreads / 32) + threadIdx.x / 32;
  if (token >= a.tokens) return;
  const int lane = threadIdx.x % 32;
  const int half = static_cast<int>(a.head_dim / 2), parts = half / kWidth, heads_at_once = 32 / parts;
  const int part = lane % parts, first_head = lane / parts;
  if (first_head >= heads_at_once) return;

  const int64_t position = a.positions[token];
  const int heads = 2 * static_cast<int>(a.heads), head_dim = static_cast<int>(a.head_dim);
  T* row = static_cast<T*>(a.qkv) + token * 3 * a.heads * a.head_dim + part * kWidth;
  Chunk<T, kWidth> p[kUnroll], q[kUnroll];
  const auto load = [&](int h0) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int h = h0 + u * heads_at_once;
      if (h >= heads) break;
      p[u].load(row + h * head_dim);
      q[u].load(row + h * head_dim + half);
    }
  };
  load(first_head);  // does not wait for the position, as the tables do

  float cos[kWidth], sin[kWidth];
  const int64_t entry = position * half + part * kWidth;
#pragma unroll
  for (int k = 0; k < kWidth; k += 4) {
    const float4 c = __ldg(reinterpret_cast<const float4*>(a.cos + entry + k));
    const float4 s = __ldg(reinterpret_cast<const float4*>(a.sin + entry + k));
    const float sign = a.inverse ? -1.0f : 1.0f;
    cos[k] = c.x;
    cos[k + 1] = c.y;
    cos[k + 2] = c.z;
    cos[k + 3] = c.w;
    sin[k] = sign * s.x;
    sin[k + 1] = sign * s.y;
    sin[k + 2] = sign * s.z;
    sin[k + 3] = sign * s.w;
  }

  for (int h0 = first_head; h0 < heads; h0 += kUnroll * heads_at_once) {
    if (h0 != first_head) load(h0);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int h = h0 + u * heads_at_once;
      if (h >= heads) break;
      float first[kWidth], second[kWidth];
      p[u].get(first);
      q[u].get(second);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) turn_pair(first[k], second[k], cos[k], sin[k]);
      Chunk<T, kWidth>::put(row + h * head_dim, first);
      Chunk<T, kWidth>::put(row + h * head_dim + half, second);
    }
  }
}

constexpr int kSumThreads = 256;
constexpr int64_t kSumThreadsEach = 512;  // that a multiprocessor holds at 128 registers a thread

__device__ void load_float8(const float* p, float (&v)[8]) {
  const float4 a = __ldg(reinterpret_cast<const float4*>(p)), b = __ldg(reinterpret_cast<const float4*>(p) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// What turns eight pairs of a token.
struct Turn {
  float cos[8], sin[8];
};

// A thread keeps eight columns of the first half of a head and their partners and walks down the tokens; the plan is
// that of a matrix of half the width. Positions are on their way a round ahead and the tables a row ahead: stores keep
// the compiler from asking for them earlier, and a round has nothing else to wait for.
template <class T>
__global__ void __launch_bounds__(kSumThreads, 2) rotary_sums_kernel(RotaryArgs a, ColumnPlan plan) {
  constexpr int kRows = sizeof(T) == 2 ? 3 : 2;  // in flight
  const int64_t cols = 3 * a.heads * a.head_dim, half = a.head_dim / 2, parts = half / 8;
  const int lane = threadIdx.x / plan.width;
  const int64_t pair = blockIdx.x * static_cast<int64_t>(plan.width) + threadIdx.x % plan.width;
  const int64_t head = pair / parts, part = pair % parts, column = head * a.head_dim + 8 * part;
  const bool mine = lane < plan.lanes && 16 * pair < cols, turns = head < 2 * a.heads;
  float sums0[8] = {}, sums1[8] = {};
  if (mine) {
    T* x = static_cast<T*>(a.qkv) + column;
    const int64_t begin = blockIdx.y * plan.chunk_rows + lane, end = min(a.tokens, (blockIdx.y + 1) * plan.chunk_rows);
    const int64_t step = kRows * plan.lanes;
    int position[kRows];
    const auto load_positions = [&](int64_t row) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) position[r] = a.positions[min(row + r * plan.lanes, end - 1)];
    };
    const auto load_turn = [&](int at, Turn& turn) {
      if (!turns) return;
      load_float8(a.cos + at * half + 8 * part, turn.cos);
      load_float8(a.sin + at * half + 8 * part, turn.sin);
    };
    if (begin < end) load_positions(begin);
    for (int64_t row = begin; row < end; row += step) {
      Vec8<T> raw0[kRows], raw1[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t token = row + r * plan.lanes;
        if (token >= end) break;
        raw0[r] = load8(x + token * cols);
        raw1[r] = load8(x + token * cols + half);
      }
      Turn turn[2];
      load_turn(position[0], turn[0]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r + 1 < kRows)
          load_turn(position[r + 1], turn[(r + 1) % 2]);
        else
          load_positions(row + step);
        const int64_t token = row + r * plan.lanes;
        if (token >= end) break;
        float first[8], second[8];
        unpack(raw0[r], first);
        unpack(raw1[r], second);
        if (turns) {
          const Turn& t = turn[r % 2];
#pragma unroll
          for (int k = 0; k < 8; ++k) turn_pair(first[k], second[k], t.cos[k], a.inverse ? -t.sin[k] : t.sin[k]);
          store8(x + token * cols, first);
          store8(x + token * cols + half, second);
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          sums0[k] += first[k];
          sums1[k] += second[k];
        }
      }
    }
  }
  float* partials = static_cast<float*>(a.workspace);
  write_partials_at(plan, cols, mine ? column : -1, sums0, partials);
  write_partials_at(plan, cols, mine ? column + half : -1, sums1, partials);
}

bool sums_while_turning(int64_t head_dim) { return head_dim % 16 == 0; }

ColumnPlan sums_plan(int64_t tokens, int64_t heads, int64_t head_dim) {
  return column_plan(tokens, 3 * heads * head_dim / 2, kSumThreadsEach);
}

cudaError_t turn_and_sum(const RotaryArgs& args, cudaStream_t stream) {
  const ColumnPlan plan = sums_plan(args.tokens, args.heads, args.head_dim);
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    return start(rotary_sums_kernel<typename decltype(type)::type>, dim3(plan.column_blocks, plan.row_chunks),
                 dim3(plan.threads), 0, stream, args, plan);
  });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = plan.row_chunks,
                                .width = 3 * args.heads * args.head_dim,
                                .outs = {args.sums}},
                stream);
}

__global__ void __launch_bounds__(kThreads) pack_geometry_kernel(PackGeometryArgs a) {
  const int64_t token = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (token >= a.tokens) return;
  // The last start that is not behind the token; empty segments share theirs with the next one and lose.
  int64_t low = 0, high = a.segments;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (a.cu_seqlens[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  a.positions[token] = static_cast<int32_t>(token) - a.cu_seqlens[low];
}

}  // namespace

cudaError_t launch(const RotaryArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (args.heads < 1 || args.head_dim < 8 || args.head_dim > 256 || args.head_dim % 8 != 0 || !aligned16(args.qkv) ||
      !aligned16(args.cos) || !aligned16(args.sin) || !aligned16(args.workspace))
    return cudaErrorInvalidValue;
  if (args.sums != nullptr && sums_while_turning(args.head_dim)) return turn_and_sum(args, stream);
  const dim3 grid(static_cast<unsigned>(ceil_div(args.tokens, kThreads / 32)));
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (args.head_dim % 16 == 0) return start(rotary_kernel<T, 8>, grid, dim3(kThreads), 0, stream, args);
    return start(rotary_kernel<T, 4>, grid, dim3(kThreads), 0, stream, args);
  });
  if (error != cudaSuccess || args.sums == nullptr) return error;
  return launch(ColumnSumArgs{.dtype = args.dtype,
                              .rows = args.tokens,
                              .cols = 3 * args.heads * args.head_dim,
                              .x = args.qkv,
                              .sum = args.sums,
                              .workspace = args.workspace},
                stream);
}

size_t rotary_sums_workspace(int64_t tokens, int64_t heads, int64_t head_dim) {
  const int64_t cols = 3 * heads * head_dim;
  return sums_while_turning(head_dim) ? column_partials_bytes(sums_plan(tokens, heads, head_dim), cols)
                                      : column_sum_workspace(tokens, cols);
}

cudaError_t launch(const PackGeometryArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (args.segments < 1) return cudaErrorInvalidValue;
  return start(pack_geometry_kernel, dim3(static_cast<unsigned>(ceil_div(args.tokens, kThreads))), dim3(kThreads), 0,
               stream, args);
}

}  // namespace esm::kernels
