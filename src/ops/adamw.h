// Decoupled AdamW (Loshchilov & Hutter 2019) with PyTorch's order of operations, on flat FP32 buffers.
#pragma once
#include <cstdint>
#include <span>

#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// Parameters that share these.
struct AdamWGroup {
  double lr_factor = 1;
  double weight_decay = 0;
  bool operator==(const AdamWGroup&) const = default;
};

/// One update of `master`, `exp_avg` and `exp_avg_sq` from `grad`: 1-D FP32 tensors of equal length (a multiple of 64),
/// contiguous. Learning rate, number of the update t, factor s on the gradient and whether to skip are read from
/// `numbers` when the work is done. With g = s grad and the group's factor f and decay w:
///   p *= 1 - lr f w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= lr f / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// Padding elements (p = g = m = v = 0) stay 0. Bit-equal for any number of threads.
struct AdamWArgs {
  static constexpr int64_t kGroupElements = 64;
  static constexpr size_t kMaxGroups = 16;

  at::Tensor master, grad, exp_avg, exp_avg_sq;
  at::Tensor compute = {};            // if defined: receives the new master in BF16, rounded to nearest even
  at::Tensor numbers;                 // UpdateControl::numbers()
  at::Tensor groups = {};             // uint8 [n / 64], group of each 64 elements; undefined: all 0
  std::span<const AdamWGroup> group;  // at most kMaxGroups; used during the call only
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
};
void adamw(const Context& context, const AdamWArgs& args);

}  // namespace esm::ops
