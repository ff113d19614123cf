// Bulk copies from global to shared memory that run beside the threads, and the barriers that tell of their end.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace esm::kernels {

/// Shared memory is named by 32-bit addresses here: the compiler keeps them, where it would work out a pointer anew.
__device__ inline uint32_t shared_address(const void* p) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  asm volatile("" : "+r"(address));
  return address;
}
__device__ inline uint4 read16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline float2 read_pair(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ inline void write_float(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ inline void write8(uint32_t address, const uint2& v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}

/// In shared memory. A phase ends when `copies` have been announced and their bytes are there.
using CopyBarrier = uint64_t;

/// Before a __syncthreads that precedes all use.
__device__ inline void init(uint32_t barrier, int copies) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(copies) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Waits for the end of the phase of this parity (0 first).
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Announces a copy and starts it. Addresses and size: multiples of 16. The lines are the first to leave the L2 cache.
__device__ inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], policy;\n"
      "}\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Starts a copy of 16 bytes that only this thread reads, after wait_for_copies; zeros if not `valid`.
__device__ inline void copy16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Brings memory to the L2 cache that copy_bytes will read next.
__device__ inline void prefetch_bytes(const void* from, uint32_t bytes) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, policy;\n"
      "}\n" ::"l"(from),
      "r"(bytes)
      : "memory");
}

/// A barrier of `threads` threads of the block (whole warps); 0 is that of __syncthreads, up to 15.
__device__ inline void sync_threads(int which, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

}  // namespace esm::kernels
