// Deterministic sums over flat buffers and over columns; CPU twins: ops/grad_norm.h and the bias gradient of
// ops/linear.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/update.h"

namespace esm::kernels {

/// *sum = sum of the squares of all elements of all buffers, in FP64 (the square of a finite FP32 value cannot overflow
/// it, so the sum is finite exactly if all elements are). The order depends on the sizes only. Buffers are FP32,
/// 16-byte aligned, their sizes multiples of 4. Bytes moved: 4 an element.
struct SumOfSquaresArgs {
  static constexpr int kMaxBuffers = 64;
  int n_buffers = 0;
  const float* buffers[kMaxBuffers] = {};
  int64_t sizes[kMaxBuffers] = {};
  double* sum = nullptr;
  void* workspace = nullptr;  // sum_of_squares_workspace() bytes
};
size_t sum_of_squares_workspace();
cudaError_t launch(const SumOfSquaresArgs& args, cudaStream_t stream);

/// sum[c] += sum over rows of x[:, c], FP32: partial sums of chunks of rows, then in their order. cols is a multiple of
/// 8, x 16-byte aligned. Bytes moved: rows * cols * E.
struct ColumnSumArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  float* sum = nullptr;
  void* workspace = nullptr;  // column_sum_workspace() bytes
};
size_t column_sum_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const ColumnSumArgs& args, cudaStream_t stream);

/// *first = min(*first, place of the first element of the buffers that is infinite or NaN), see kBufferShift. Reads
/// nothing when *wanted is 0. Buffers are FP32, 16-byte aligned, their sizes multiples of 4.
struct FirstNonfiniteArgs {
  static constexpr int kMaxBuffers = 64;
  const int32_t* wanted = nullptr;
  int n_buffers = 0;
  int first_buffer = 0;  // number of buffers[0]
  const float* buffers[kMaxBuffers] = {};
  int64_t sizes[kMaxBuffers] = {};
  uint64_t* first = nullptr;
};
cudaError_t launch(const FirstNonfiniteArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
