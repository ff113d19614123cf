// GELU whose results go into FP8 GEMMs; CPU twin: ops/gelu.h, rounded to BF16, then kernels/fp8_math.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/fp8_out.h"
#include "kernels/gelu.h"

namespace esm::kernels {

/// BF16 in, 16-byte aligned; rows and columns are multiples of kFp8Multiple. Rows from *row_count on (device memory;
/// null: all rows count) are not looked at: their bytes are 0, and they are outside amax and sums.

/// y.rows = gelu(x). Bytes moved: 3 * rows * cols; 2 * rows * cols to measure only.
struct GeluFp8Args {
  GeluForm form = GeluForm::kErf;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const int32_t* row_count = nullptr;
  Fp8Out y;  // rows only
};
cudaError_t launch(const GeluFp8Args& args, cudaStream_t stream);

/// dx = dy gelu'(x); y = gelu(x) again, which the forward pass need not keep; dx_sum += column sums of dx before
/// rounding (FP32: partial sums of tiles, then in their order). Without any order of dx it measures. Bytes moved: rows
/// * cols * (4 + 1 for each order of dx and y), and with dx_sum 1/16 more per 128 rows (under 1 %).
struct GeluFp8BackwardArgs {
  GeluForm form = GeluForm::kErf;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  const int32_t* row_count = nullptr;
  Fp8Out dx;
  Fp8Out y;                   // transposed only, or neither; of kF8E4M3
  float* dx_sum = nullptr;    // null, or [cols], added to: bias gradient
  void* workspace = nullptr;  // gelu_fp8_backward_workspace() bytes, with dx_sum
};
size_t gelu_fp8_backward_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const GeluFp8BackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
