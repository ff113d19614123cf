// Between FP32 and BF16; CPU twin: ops/cast.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// to = from, n elements (a multiple of 8), 16-byte aligned; types kF32 or kBF16. To BF16 rounds to nearest even.
/// Bytes moved: n * (E of from + E of to).
struct CastArgs {
  DType from_dtype = DType::kF32;
  DType to_dtype = DType::kBF16;
  int64_t n = 0;
  const void* from = nullptr;
  void* to = nullptr;
};
cudaError_t launch(const CastArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
