// Eight consecutive elements (one 16-byte access of BF16, two of FP32), computed on as FP32.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/instructions.cuh"

namespace esm::kernels {

/// Eight elements as they lie in memory.
template <class T>
struct Vec8;
template <>
struct Vec8<__nv_bfloat16> {
  uint4 a;
};
template <>
struct Vec8<float> {
  float4 a, b;
};

/// Streaming reads: the line is the first to leave the caches.
__device__ inline Vec8<__nv_bfloat16> load8(const __nv_bfloat16* p) {
  return {__ldcs(reinterpret_cast<const uint4*>(p))};
}
__device__ inline Vec8<float> load8(const float* p) {
  const float4* q = reinterpret_cast<const float4*>(p);
  return {__ldcs(q), __ldcs(q + 1)};
}

/// Read-only values that many rows share.
__device__ inline Vec8<__nv_bfloat16> load8_shared(const __nv_bfloat16* p) {
  return {__ldg(reinterpret_cast<const uint4*>(p))};
}
__device__ inline Vec8<float> load8_shared(const float* p) {
  const float4* q = reinterpret_cast<const float4*>(p);
  return {__ldg(q), __ldg(q + 1)};
}

template <class T>
__device__ inline Vec8<T> zero8() {
  return Vec8<T>{};
}

/// To global memory.
__device__ inline void store8(__nv_bfloat16* p, const Vec8<__nv_bfloat16>& v) { store16(p, v.a); }
__device__ inline void store4(float* p, const float4& v) {
  store16(p, make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)));
}
__device__ inline void store8(float* p, const Vec8<float>& v) {
  store4(p, v.a);
  store4(p + 4, v.b);
}

__device__ inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

/// Rounds to nearest even; `low` goes to the lower address.
__device__ inline uint32_t bf16_pair(float low, float high) {
  uint32_t pair;  // the header's own function costs three more instructions to take it apart again
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline void unpack(const Vec8<__nv_bfloat16>& v, float (&out)[8]) {
  out[0] = bf16_low(v.a.x);
  out[1] = bf16_high(v.a.x);
  out[2] = bf16_low(v.a.y);
  out[3] = bf16_high(v.a.y);
  out[4] = bf16_low(v.a.z);
  out[5] = bf16_high(v.a.z);
  out[6] = bf16_low(v.a.w);
  out[7] = bf16_high(v.a.w);
}
__device__ inline void unpack(const Vec8<float>& v, float (&out)[8]) {
  out[0] = v.a.x;
  out[1] = v.a.y;
  out[2] = v.a.z;
  out[3] = v.a.w;
  out[4] = v.b.x;
  out[5] = v.b.y;
  out[6] = v.b.z;
  out[7] = v.b.w;
}

__device__ inline void pack(const float (&v)[8], Vec8<__nv_bfloat16>& out) {
  out.a = make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
}
__device__ inline void pack(const float (&v)[8], Vec8<float>& out) {
  out.a = make_float4(v[0], v[1], v[2], v[3]);
  out.b = make_float4(v[4], v[5], v[6], v[7]);
}

/// (x - mean) * rstd. BF16: in one instruction; its error, 2^-24 of mean * rstd, is far below the rounding of the
/// result.
template <class T>
__device__ inline float standardized(float x, float mean, float rstd) {
  if constexpr (sizeof(T) == 2) return fmaf(x, rstd, -mean * rstd);
  return (x - mean) * rstd;
}

template <class T>
__device__ inline void store8(T* p, const float (&v)[8]) {
  Vec8<T> packed;
  pack(v, packed);
  store8(p, packed);
}

/// Sum over aligned groups of kLanes lanes (a power of two up to 32), in every lane; all 32 lanes take part.
template <int kLanes, class T>
__device__ inline T lanes_sum(T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

}  // namespace esm::kernels
