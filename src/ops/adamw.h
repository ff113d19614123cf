// Decoupled AdamW (Loshchilov & Hutter 2019) on flat buffers, in every format of weights and moments.
#pragma once
#include <cstdint>
#include <span>

#include "device/context.h"
#include "ops/aten.h"
#include "precision/state_formats.h"

namespace esm::ops {

/// Parameters that share these.
struct AdamWGroup {
  double lr_factor = 1;
  double weight_decay = 0;
  bool operator==(const AdamWGroup&) const = default;
};

/// One update of weights, `exp_avg` and `exp_avg_sq` from `grad`: 1-D tensors of equal length (a multiple of 64),
/// contiguous, of the types that `formats` says. Arithmetic is FP32 whatever the formats; kernels/adamw_math.h has it
/// all. Learning rate, number of the update t, factor s on the gradient and whether to skip are read from `numbers`
/// when the work is done. With g = s grad and the group's factor f and decay w:
///   p *= 1 - lr f w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= lr f / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// Padding elements (p = g = m = v = 0) stay 0. Bit-equal for any number of threads, and on CPU and GPU.
struct AdamWArgs {
  static constexpr int64_t kGroupElements = 64;
  static constexpr size_t kMaxGroups = 16;

  precision::StateFormats formats = {};
  at::Tensor master = {};     // FP32; MasterFormat::kF32 only
  at::Tensor compute = {};    // BF16; MasterFormat::kF32: if defined, receives the new master as ops::split_weights()
  at::Tensor remainder = {};  // MasterFormat::kBF16Remainder only
  at::Tensor grad, exp_avg, exp_avg_sq;
  at::Tensor exp_avg_scale = {}, exp_avg_sq_scale = {};  // MomentFormat::kE4M3 only: FP32 [ceil(n / 128)]
  at::Tensor numbers;                                    // UpdateControl::numbers()
  at::Tensor groups = {};                                // uint8 [n / 64], group of each 64 elements; undefined: all 0
  std::span<const AdamWGroup> group;                     // at most kMaxGroups; used during the call only
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  uint64_t seed = 0;          // of stochastic rounding: its bits are those of (seed, t, random_offset + element)
  int64_t random_offset = 0;  // of element 0 in the whole model; a multiple of 4
};
void adamw(const Context& context, const AdamWArgs& args);

}  // namespace esm::ops
