// Fused AdamW over flat buffers; CPU twin: ops/adamw.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// One update in place (order of operations as in ops/adamw.h):
///   g = grad * grad_scale;  p *= 1 - lr * weight_decay;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= step_size * m / (sqrt(v) * inv_sqrt_bias2 + eps)
/// with step_size = lr / (1 - beta1^t) and inv_sqrt_bias2 = 1 / sqrt(1 - beta2^t) from the host.
/// All buffers are device memory, 16-byte aligned, of n elements; n is a multiple of 4 (flat storage pads to 64).
/// Elementwise, hence deterministic. Bytes moved per element: 16 read, 12 written, 2 more with `compute`.
struct AdamwArgs {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* grad = nullptr;
  uint16_t* compute = nullptr;  // BF16 bits, rounded to nearest even; nullptr: none
  int64_t n = 0;
  float decay = 1;  // 1 - lr * weight_decay
  float step_size = 0;
  float beta1 = 0.9f;
  float beta2 = 0.98f;
  float one_minus_beta1 = 0.1f;
  float one_minus_beta2 = 0.02f;
  float inv_sqrt_bias2 = 1;
  float eps = 1e-8f;
  float grad_scale = 1;
};

/// Queues the update on `stream`. Returns the launch error.
cudaError_t launch(const AdamwArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
