// Single instructions that C++ has no word for.
#pragma once
#include <cuda_runtime.h>

namespace esm::kernels {

/// 2^x and 1/x of the special-function unit, about 2 ulp; denormal results become 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Stores to global memory that stay whole (the compiler has been seen to split plain ones into 4-byte stores).
__device__ inline void store16(void* p, const uint4& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ inline void store8_bytes(void* p, const uint2& v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}

/// As store16 and store8_bytes; the lines are the first to leave the L2 cache.
__device__ inline void store16_first(void* p, const uint4& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ inline void store8_bytes_first(void* p, const uint2& v) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}

/// Brings the line to the L1 cache.
__device__ inline void prefetch(const float* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

/// Hides from the compiler what `v` holds: values derived from it are not computed ahead of a loop and kept.
__device__ inline void hide(uint4& v) { asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)); }

}  // namespace esm::kernels
