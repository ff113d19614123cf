// Decoupled AdamW (Loshchilov & Hutter 2019) with PyTorch's order of operations, on flat FP32 buffers.
#pragma once
#include <cstdint>

#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// One update of `master`, `exp_avg` and `exp_avg_sq` from `grad`: 1-D FP32 tensors of equal length, contiguous (views
/// of flat storage, so that runs of parameters may have their own lr and decay). With g = grad * grad_scale:
///   p *= 1 - lr * weight_decay;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
/// Padding elements (p = g = m = v = 0) stay 0. Bit-equal for any number of threads.
struct AdamWArgs {
  at::Tensor master, grad, exp_avg, exp_avg_sq;
  at::Tensor compute = {};  // if defined: receives the new master in BF16, rounded to nearest even
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  double weight_decay = 0;
  /// Factor on every gradient: 1 / (number of scored tokens), times the clip factor.
  double grad_scale = 1;
  /// 1 for the first update.
  int64_t step = 1;
};
void adamw(const Context& context, const AdamWArgs& args);

}  // namespace esm::ops
