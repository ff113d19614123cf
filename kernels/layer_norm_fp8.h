// LayerNorm between FP8 GEMMs; CPU twin: ops/layer_norm.h, rounded to BF16, then kernels/fp8_math.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/fp8_out.h"

namespace esm::kernels {

/// BF16 in, 16-byte aligned; rows and columns are multiples of kFp8Multiple. Rows from *row_count on (device memory;
/// null: all rows count) are not looked at: what they give is 0, and they are outside amax and sums.

/// y.rows = layer_norm(x) as in layer_norm.h, in E4M3. (LN(x)^T comes from the backward pass.) Up to 8192 columns.
/// Bytes moved: rows * (3 * cols + 8), one less per element to measure only.
struct LayerNormFp8Args {
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  float eps = 1e-5f;
  const int32_t* row_count = nullptr;
  Fp8Out y;               // rows only
  float* mean = nullptr;  // [rows]; both null: not kept. Rows that do not count: 0 and 1 / sqrt(eps)
  float* rstd = nullptr;  // [rows]
};
cudaError_t launch(const LayerNormFp8Args& args, cudaStream_t stream);

/// Columns of the backward pass.
inline constexpr int64_t kLayerNormFp8MaxCols = 5120;

/// As LayerNormBackwardArgs, with dx in BF16 for the residual stream and in FP8 for the linear before it, and
/// y^T = layer_norm(x)^T in FP8 again, byte for byte that of the forward pass, for the weight gradient of the linear
/// after it. Up to kLayerNormFp8MaxCols columns. Bytes moved: rows * (cols * (6, 8 with residual, + 1 for each order of
/// dx and y) + 8) and about 2 % for the partial sums.
struct LayerNormFp8BackwardArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* dy = nullptr;
  const void* residual_gradient = nullptr;  // null: none; may be dx
  const int32_t* row_count = nullptr;
  void* dx = nullptr;         // BF16 [rows, cols]; may be dy
  Fp8Out dx8;                 // of dx as rounded to BF16; without orders measured only
  Fp8Out y8;                  // transposed only, or null; of kF8E4M3
  float* dgamma = nullptr;    // [cols], added to
  float* dbeta = nullptr;     // [cols], added to
  float* dx_sum = nullptr;    // null, or [cols], added to: bias gradient of the linear before
  void* workspace = nullptr;  // layer_norm_fp8_backward_workspace() bytes
};
size_t layer_norm_fp8_backward_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const LayerNormFp8BackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
