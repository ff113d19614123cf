// Fused AdamW over flat buffers; CPU twin: ops/adamw.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

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

/// Where the master weights are.
enum class MasterFormat {
  kF32,            // FP32 `master`; `compute`, unless null, receives its BF16 rounding
  kBF16Remainder,  // exactly FP32, in two halves: `compute` rounded to nearest (ties up), `remainder` the low 16 bits
  kBF16            // `compute` alone, rounded stochastically
};

/// How the moments are kept.
enum class MomentFormat {
  kF32,
  kBF16,  // rounded stochastically
  kE4M3   // one byte; scale per 128 elements; stochastic; the second moment as its root, never rounded to 0
};

/// One update in place, with g = grad * grad_scale and the group's lr factor f and decay w:
///   p *= 1 - lr f w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= step_lr f * m / (sqrt(v) * inv_sqrt_bias2 + eps)
/// All buffers are device memory, 16-byte aligned, of n elements; n is a multiple of 64 (as flat storage). Elementwise,
/// hence deterministic; random bits are those of (seed, updates, random_offset + element), whatever the sharding.
/// Padding (p = g = m = v = 0) stays 0. Bytes moved per element: kF32 30 (28 without compute), kBF16Remainder 28,
/// kBF16Remainder with BF16 moments 20, all BF16 16, E4M3 moments 4 less than BF16 moments.
struct AdamwArgs {
  static constexpr int kMaxGroups = 16;
  static constexpr int64_t kGroupElements = 64, kScaleElements = 128;
  struct Group {
    double lr_factor = 1;
    double weight_decay = 0;
  };

  MasterFormat master_format = MasterFormat::kF32;
  MomentFormat moment_format = MomentFormat::kF32;
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
