#include "kernels/rotary.h"

#include "kernels/launch.cuh"
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
      for (int k = 0; k < kWidth; ++k) {
        const float x = first[k], y = second[k];
        first[k] = x * cos[k] - y * sin[k];
        second[k] = y * cos[k] + x * sin[k];
      }
      Chunk<T, kWidth>::put(row + h * head_dim, first);
      Chunk<T, kWidth>::put(row + h * head_dim + half, second);
    }
  }
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
  if (a.segment_ids != nullptr) a.segment_ids[token] = static_cast<int32_t>(low);
}

}  // namespace

cudaError_t launch(const RotaryArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (args.heads < 1 || args.head_dim < 8 || args.head_dim > 256 || args.head_dim % 8 != 0 || !aligned16(args.qkv) ||
      !aligned16(args.cos) || !aligned16(args.sin))
    return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.tokens, kThreads / 32)));
  return with_activation(args.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (args.head_dim % 16 == 0) return start(rotary_kernel<T, 8>, grid, dim3(kThreads), 0, stream, args);
    return start(rotary_kernel<T, 4>, grid, dim3(kThreads), 0, stream, args);
  });
}

cudaError_t launch(const PackGeometryArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (args.segments < 1) return cudaErrorInvalidValue;
  return start(pack_geometry_kernel, dim3(static_cast<unsigned>(ceil_div(args.tokens, kThreads))), dim3(kThreads), 0,
               stream, args);
}

}  // namespace esm::kernels
