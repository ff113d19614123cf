// FP8 on the device: eight values to eight bytes, largest absolute values, rows that count.
#pragma once
#include <cuda_fp8.h>

#include "base/dtype.h"
#include "kernels/fp8_out.h"
#include "kernels/launch.cuh"
#include "kernels/vector.cuh"

namespace esm::kernels {

/// Calls body(std::integral_constant<DType, ...>{}) with one of the FP8 types; others are an invalid value.
template <class Body>
cudaError_t with_fp8(DType dtype, const Body& body) {
  if (dtype == DType::kF8E4M3) return body(std::integral_constant<DType, DType::kF8E4M3>{});
  if (dtype == DType::kF8E5M2) return body(std::integral_constant<DType, DType::kF8E5M2>{});
  return cudaErrorInvalidValue;
}

inline bool usable(const Fp8Out& out, bool needed) {
  if (out.rows == nullptr && out.transposed == nullptr) return !needed;
  return out.scale != nullptr && aligned16(out.rows) && aligned16(out.transposed);
}

/// Whether there is something to do: an order to write or, with neither, an amax to measure.
inline bool wanted(const Fp8Out& out) {
  return out.rows != nullptr || out.transposed != nullptr || out.amax != nullptr;
}

/// Of an output that may be there for its amax alone.
__device__ inline float scale_of(const Fp8Out& out) { return out.scale != nullptr ? *out.scale : 0.0f; }

/// `low` goes to the lower address.
template <DType kTo>
__device__ inline uint32_t fp8_pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE,
                                  kTo == DType::kF8E4M3 ? __NV_E4M3 : __NV_E5M2);
}

template <DType kTo>
__device__ inline uint2 fp8_bytes(const float (&v)[8], float scale) {
  return make_uint2(fp8_pair<kTo>(v[0] * scale, v[1] * scale) | fp8_pair<kTo>(v[2] * scale, v[3] * scale) << 16,
                    fp8_pair<kTo>(v[4] * scale, v[5] * scale) | fp8_pair<kTo>(v[6] * scale, v[7] * scale) << 16);
}

/// Each value with a scale of its own.
template <DType kTo>
__device__ inline uint2 fp8_bytes(const float (&v)[8], const float (&scale)[8]) {
  return make_uint2(
      fp8_pair<kTo>(v[0] * scale[0], v[1] * scale[1]) | fp8_pair<kTo>(v[2] * scale[2], v[3] * scale[3]) << 16,
      fp8_pair<kTo>(v[4] * scale[4], v[5] * scale[5]) | fp8_pair<kTo>(v[6] * scale[6], v[7] * scale[7]) << 16);
}

/// |v| as bits: ordered like the values, NaN above all.
__device__ inline uint32_t magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

/// Largest absolute value that a thread has seen. BF16 in pairs.
template <class T>
struct Amax;
template <>
struct Amax<float> {
  uint32_t largest = 0;
  __device__ void see(const Vec8<float>& v) {
    largest = max(largest, max(max(magnitude(v.a.x), magnitude(v.a.y)), max(magnitude(v.a.z), magnitude(v.a.w))));
    largest = max(largest, max(max(magnitude(v.b.x), magnitude(v.b.y)), max(magnitude(v.b.z), magnitude(v.b.w))));
  }
  __device__ uint32_t bits() const { return largest; }
};
template <>
struct Amax<Bf16> {
  uint32_t signed_pairs = 0, unsigned_pairs = 0;  // largest as integers: of what is positive, of what is negative
  __device__ void see(uint32_t pair) {
    signed_pairs = __vmaxs2(signed_pairs, pair);
    unsigned_pairs = __vmaxu2(unsigned_pairs, pair);
  }
  __device__ void see(const Vec8<Bf16>& v) {
    see(v.a.x);
    see(v.a.y);
    see(v.a.z);
    see(v.a.w);
  }
  __device__ uint32_t bits() const {
    const uint32_t pairs = __vmaxu2(signed_pairs, unsigned_pairs & 0x7fff7fffu);
    return max(pairs << 16, pairs & 0xffff0000u);
  }
};

/// The values that a BF16 tensor would hold; zeros if they do not count.
__device__ inline void round_bf16(float (&v)[8], Amax<Bf16>& amax, bool counts = true) {
  Vec8<Bf16> packed;
  pack(v, packed);
  if (!counts) packed = zero8<Bf16>();
  unpack(packed, v);
  amax.see(packed);
}

/// *amax = max(*amax, value of `bits`). Most callers find it large enough already and leave the atomic unit alone.
__device__ inline void raise(float* amax, uint32_t bits) {
  unsigned* word = reinterpret_cast<unsigned*>(amax);
  if (bits > *static_cast<volatile unsigned*>(word)) atomicMax(word, bits);
}

/// Largest `bits` of the block, in every thread of its first warp. All threads take part; up to 1024. Each call of a
/// kernel has a kCall of its own.
template <int kCall>
__device__ inline uint32_t block_max(uint32_t bits) {
  __shared__ uint32_t slots[32];
  bits = __reduce_max_sync(0xffffffffu, bits);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  return __reduce_max_sync(0xffffffffu, threadIdx.x < blockDim.x / 32 ? slots[threadIdx.x] : 0u);
}

template <int kCall>
__device__ inline void raise_by_block(float* amax, uint32_t bits) {
  if (amax == nullptr) return;  // the same for the whole block
  bits = block_max<kCall>(bits);
  if (threadIdx.x == 0) raise(amax, bits);
}

/// Rows that count: all of them without a row count.
__device__ inline int64_t counted_rows(int64_t rows, const int32_t* row_count) {
  return row_count == nullptr ? rows : min(rows, static_cast<int64_t>(max(*row_count, 0)));
}

}  // namespace esm::kernels
