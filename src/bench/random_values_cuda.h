// Random contents of large device buffers: the power that a GPU draws, hence its clock, depends on the values.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "device/memory.h"

namespace esm::bench {

/// Normal values, some millions of them drawn and then repeated.
class RandomValues {
 public:
  RandomValues();
  /// n values (a multiple of 8) of kF32 or kBF16 at `to`, queued on `stream`.
  void fill(DType dtype, int64_t n, void* to, cudaStream_t stream) const;
  /// A new buffer of n such values.
  device::DeviceBuffer make(const char* purpose, DType dtype, int64_t n, cudaStream_t stream) const;

 private:
  device::DeviceBuffer block_;  // FP32
};

/// A new buffer of `bytes` that repeats `block` over and over; waits for the copy of `block`.
device::DeviceBuffer make_repeated(const char* purpose, const void* block, int64_t block_bytes, int64_t bytes,
                                   cudaStream_t stream);

/// A new buffer of n FP8 codes of normal values times 64; `which`: other values.
device::DeviceBuffer make_fp8_values(const char* purpose, DType dtype, int64_t n, uint32_t which, cudaStream_t stream);

}  // namespace esm::bench
