// GELU forward and backward; CPU twin: ops/gelu.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// kErf: x Phi(x). kTanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
/// Phi(-a) = e^(-a^2/2) t P(t) with t = 1 / (1 + c a), so that the negative tail keeps its digits: FP32 with the
/// polynomial of the CPU twin (relative 2.5e-8 before rounding), BF16 with one of degree 4 (2.9e-5, under 1 % of an
/// ulp).
enum class GeluForm { kErf, kTanh };

/// y = gelu(x) on rows * cols elements (a multiple of 8), 16-byte aligned. Bytes moved: 2 * rows * cols * E.
struct GeluArgs {
  DType dtype = DType::kBF16;
  GeluForm form = GeluForm::kErf;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  void* y = nullptr;  // may be x
};
cudaError_t launch(const GeluArgs& args, cudaStream_t stream);

/// dx = dy gelu'(x); y = gelu(x) again; dx_sum += column sums of dx before rounding (FP32; partial sums of chunks of
/// rows, then in their order). cols is a multiple of 8. Bytes moved: (3, 4 with y) * rows * cols * E.
struct GeluBackwardArgs {
  DType dtype = DType::kBF16;
  GeluForm form = GeluForm::kErf;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;         // may be dy
  void* y = nullptr;          // null: not wanted; may be x, may not be dx
  float* dx_sum = nullptr;    // null, or [cols], added to: bias gradient
  void* workspace = nullptr;  // gelu_backward_workspace() bytes, with dx_sum
};
size_t gelu_backward_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const GeluBackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
