// Codes of a group of neighbours with a scale of its own, MX and NVFP4; arithmetic: fp8_scale.h.
#pragma once
#include <cuda_fp16.h>

#include "kernels/fp8.cuh"
#include "kernels/fp8_scale.h"

namespace esm::kernels {

/// 32 neighbours: UE8M0, E4M3.
struct MxGroup {
  static constexpr int kElements = 32, kCodeBits = 8;
  float factor;
  uint32_t scale_code;
  /// amax: bits of the group's. tensor: unused.
  __device__ MxGroup(uint32_t amax, float) {
    const int exponent = scale_exponent(__uint_as_float(amax), kMaxE4M3, 0);
    factor = power_of_two(exponent);
    scale_code = mx_scale_code(exponent);
  }
  /// Two neighbours, the first in the low bits. By the instruction whose codes are those of fp8_math.h.
  __device__ uint32_t codes(float x, float y) const { return fp8_pair<DType::kF8E4M3>(x * factor, y * factor); }
  __device__ float inverse() const { return decode_ue8m0(scale_code); }
  __device__ static float2 values(uint32_t codes) {
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3)));
  }
};

/// 16 neighbours: UE4M3 and the FP32 factor of the tensor, E2M1.
struct NvGroup {
  static constexpr int kElements = 16, kCodeBits = 4;
  float factor;
  uint32_t scale_code;
  /// tensor: nv_tensor_scale().
  __device__ NvGroup(uint32_t amax, float tensor) {
    scale_code = nv_block_code(__uint_as_float(amax), tensor);
    factor = nv_multiplier(scale_code, tensor);
  }
  __device__ uint32_t codes(float x, float y) const { return encode_e2m1(x * factor) | encode_e2m1(y * factor) << 4; }
  /// Without that of the tensor.
  __device__ float inverse() const { return decode_e4m3(scale_code); }
  __device__ static float2 values(uint32_t codes) {
    return make_float2(decode_e2m1(codes & 0xfu), decode_e2m1(codes >> 4));
  }
};

// A warp takes 32 rows of 64 columns, which hold every group whole: lane l the rows 8 * (l / 8) and on of the eight
// columns from 8 * (l % 8) on.
inline constexpr int kGroupRows = 32, kGroupColumns = 64, kGroupThreads = 128;

template <class Group>
__device__ constexpr int group_lanes = Group::kElements / 8;

__device__ inline uint32_t lanes_max(uint32_t bits, int offset) {
  return max(bits, __shfl_xor_sync(0xffffffffu, bits, offset));
}

/// Largest magnitude of the group of neighbours in a row that a lane's eight values belong to.
template <class Group>
__device__ inline uint32_t row_group_amax(const Vec8<Bf16>& raw) {
  Amax<Bf16> amax;
  amax.see(raw);
  uint32_t bits = amax.bits();
#pragma unroll
  for (int offset = 1; offset < group_lanes<Group>; offset *= 2) bits = lanes_max(bits, offset);
  return bits;
}

/// Of the groups of neighbours in a column: largest magnitudes of a lane's eight columns.
template <class Group>
__device__ inline void column_group_amax(const Vec8<Bf16> (&raw)[8], uint32_t (&bits)[8]) {
  uint32_t pairs[4] = {};
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const uint32_t words[4] = {raw[r].a.x, raw[r].a.y, raw[r].a.z, raw[r].a.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = __vmaxu2(pairs[k], words[k] & 0x7fff7fffu);
  }
#pragma unroll
  for (int offset = 8; offset < 8 * group_lanes<Group>; offset *= 2)
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = __vmaxu2(pairs[k], __shfl_xor_sync(0xffffffffu, pairs[k], offset));
#pragma unroll
  for (int k = 0; k < 8; ++k) bits[k] = k % 2 == 0 ? pairs[k / 2] << 16 : pairs[k / 2] & 0xffff0000u;
}

/// Where the values of a lane lie.
struct GroupPlace {
  int64_t row, column;
  __device__ GroupPlace(int64_t warp, int64_t warps_across)
      : row(warp / warps_across * kGroupRows + threadIdx.x % 32 / 8 * 8),
        column(warp % warps_across * kGroupColumns + threadIdx.x % 8 * 8) {}
};

}  // namespace esm::kernels
