// Where a kernel leaves a tensor in FP8 that is scaled as a whole.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// FP8 GEMMs of Hopper want both operands with the summed dimension innermost, hence the two orders. byte = value *
/// *scale, rounded to nearest even, saturated (Inf too; NaN stays NaN). *amax = max(*amax, |value|) in FP32: an integer
/// maximum of the bits, hence exact and the same in any order; NaN counts as larger than Inf. Kernels that say so take
/// an output without orders, to measure its amax only (for scales of the moment and a first step). Tensors that a BF16
/// layer would store are rounded to BF16 first, so that a fused kernel gives the bytes of the BF16 kernel and a cast
/// after it.
struct Fp8Out {
  DType dtype = DType::kF8E4M3;   // kF8E4M3 or kF8E5M2
  uint8_t* rows = nullptr;        // [rows, cols], 16-byte aligned; null: not wanted
  uint8_t* transposed = nullptr;  // [cols, rows], 16-byte aligned; null: not wanted
  const float* scale = nullptr;   // [1] in device memory
  float* amax = nullptr;          // [1] in device memory, not negative; null: not wanted
};

/// Rows and columns of matrices in FP8 are multiples of this (16 bytes, as cuBLASLt wants them).
inline constexpr int64_t kFp8Multiple = 16;

}  // namespace esm::kernels
