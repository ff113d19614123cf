// What FP8 and BF16 tensors hold, for statistics; CPU references: src/checks/fp8_counts_cuda.cpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// counts[0] += codes that are zero, of either sign; counts[1] += codes that are at the end of the range: the greatest
/// finite magnitude (whatever lay beyond it saturates there), infinity or NaN. Rows from *row_count on (device memory;
/// null: all rows count) are not looked at. x: dense [rows, cols], 16-byte aligned, cols a multiple of 16. Exact.
/// Bytes moved: rows * cols.
struct Fp8CountsArgs {
  DType dtype = DType::kF8E4M3;  // kF8E4M3 or kF8E5M2
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* x = nullptr;
  const int32_t* row_count = nullptr;
  uint64_t* counts = nullptr;  // [2] in device memory
};
cudaError_t launch(const Fp8CountsArgs& args, cudaStream_t stream);

/// moments[0] = sum of the elements, moments[1] = sum of their squares, in FP64 in an order that depends on the shape
/// and the row count only. Rows and alignment as above, cols a multiple of 8, BF16. Bytes moved: 2 * rows * cols.
struct MomentsArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const int32_t* row_count = nullptr;
  double* moments = nullptr;  // [2] in device memory, overwritten
  void* workspace = nullptr;  // moments_workspace() bytes, 16-byte aligned
};
size_t moments_workspace();
cudaError_t launch(const MomentsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
