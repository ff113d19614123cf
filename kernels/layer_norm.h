// LayerNorm over rows; CPU twin: ops/layer_norm.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// Columns are a multiple of 8 from 8 to 8192. Activations, gamma and beta are of `dtype` (kF32 or kBF16), dense rows,
/// 16-byte aligned; statistics and arithmetic are FP32. Results do not depend on the device or on timing.
inline constexpr int64_t kLayerNormMaxCols = 8192;

/// y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(var + eps); variance in a second pass over registers.
/// Bytes moved (E of an element): rows * (cols * 2E + 8).
struct LayerNormArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;      // [rows, cols]
  const void* gamma = nullptr;  // [cols]
  const void* beta = nullptr;   // [cols]
  float eps = 1e-5f;
  void* y = nullptr;      // [rows, cols]; may be x
  float* mean = nullptr;  // [rows]; both null: not kept
  float* rstd = nullptr;  // [rows]
};
cudaError_t launch(const LayerNormArgs& args, cudaStream_t stream);

/// With xhat = (x - mean) * rstd and g = dy * gamma:
///   dx = residual_gradient + rstd * (g - mean(g) - xhat * mean(g * xhat));   y = xhat * gamma + beta
///   dgamma += sum over rows of dy * xhat;  dbeta += sum of dy;  dx_sum += sum of dx (before rounding to `dtype`)
/// Sums are FP32: partial sums of blocks of rows in `workspace`, then added in their order.
/// Bytes moved: rows * (cols * E * (3, 4 with residual, 1 more with y) + 8) and about 2 % for the partial sums.
struct LayerNormBackwardArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* gamma = nullptr;
  const void* beta = nullptr;  // needed with y only
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* dy = nullptr;
  const void* residual_gradient = nullptr;  // null: none; may be dx
  void* dx = nullptr;                       // may be dy unless y is
  void* y = nullptr;                        // null, or receives the forward output again; may be dy
  float* dgamma = nullptr;                  // [cols], added to
  float* dbeta = nullptr;                   // [cols], added to
  float* dx_sum = nullptr;                  // null, or [cols], added to: bias gradient of the linear before
  void* workspace = nullptr;                // layer_norm_backward_workspace() bytes
};
size_t layer_norm_backward_workspace(int64_t rows, int64_t cols, bool dx_sum);
cudaError_t launch(const LayerNormBackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
