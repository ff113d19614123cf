// Fused AdamW over flat buffers; CPU twin: ops/adamw.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/adamw_math.h"
#include "kernels/update.h"

namespace esm::kernels {

/// dynamic = values of the next update. A skipped step leaves dynamic->updates alone. One thread, FP64.
struct AdamwPrepareArgs {
  const double* lr = nullptr;  // [1] of this step, written by the host
  const ClipResult* clip = nullptr;
  double beta1 = 0.9;
  double beta2 = 0.98;
  AdamwDynamic* dynamic = nullptr;
};
cudaError_t launch(const AdamwPrepareArgs& args, cudaStream_t stream);

/// One update in place, with g = grad * grad_scale and the group's lr factor f and decay w:
///   p *= 1 - lr f w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= step_lr f * m / (sqrt(v) * inv_sqrt_bias2 + eps)
/// All buffers are device memory, 16-byte aligned, of n elements; n is a multiple of 64. Arithmetic: adamw_math.h.
/// Elementwise, hence deterministic; random bits are those of (seed, updates, random_offset + element), whatever the
/// sharding (one-byte moments: at multiples of kScaleElements). Padding (p = g = m = v = 0) stays 0. Bytes moved per
/// element: kF32 30 (28 without compute), kBF16Remainder 28, kBF16Remainder with BF16 moments 20, all BF16 16, E4M3
/// moments 4 less than BF16 moments.
struct AdamwArgs {
  static constexpr int kMaxGroups = kernels::kMaxGroups;
  static constexpr int64_t kGroupElements = kernels::kGroupElements;
  struct Group {
    double lr_factor = 1;
    double weight_decay = 0;
  };

  StateFormats formats;
  float* master = nullptr;        // kF32 only
  uint16_t* compute = nullptr;    // BF16 bits
  uint16_t* remainder = nullptr;  // kBF16Remainder only
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  float* exp_avg_scale = nullptr;  // kE4M3 only: [ceil(n / 128)]
  float* exp_avg_sq_scale = nullptr;
  const float* grad = nullptr;
  int64_t n = 0;
  const uint8_t* groups = nullptr;  // [n / 64] group of each 64 elements; null: all 0
  Group group[kMaxGroups] = {};
  float beta1 = 0.9f;
  float beta2 = 0.98f;
  float one_minus_beta1 = 0.1f;
  float one_minus_beta2 = 0.02f;
  float eps = 1e-8f;
  const AdamwDynamic* dynamic = nullptr;
  uint64_t seed = 0;
  int64_t random_offset = 0;  // of element 0 in the whole model; a multiple of 4
};

/// Queues the update on `stream`. Returns the launch error.
cudaError_t launch(const AdamwArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
