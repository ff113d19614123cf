// What decides an optimizer update: norm of the gradient, clip factor, whether to skip, the numbers of AdamW. All of it
// happens where the model works, so that the host waits for nothing.
#pragma once
#include <vector>

#include "device/context.h"
#include "kernels/update.h"
#include "ops/aten.h"
#include "ops/upload.h"

namespace esm::ops {

/// FP64 sum of the squares of contiguous FP32 tensors, over fixed blocks and in the tensors' order: bit-equal for any
/// number of threads. Infinite or NaN when an element is (the square of a finite FP32 value cannot overflow FP64).
/// Waits for the device.
double sum_of_squares(const Context& context, const std::vector<at::Tensor>& tensors);

/// Numbers of update `updates` (1 for the first) for given values: what decide() ends with.
kernels::AdamwDynamic adamw_numbers(int64_t updates, double lr, double beta1, double beta2, double grad_scale);
/// The same as ops::adamw() wants them: a tensor as UpdateControl::numbers().
at::Tensor adamw_numbers_tensor(const Context& context, const kernels::AdamwDynamic& numbers);

class UpdateControl {
 public:
  /// Of these gradients: flat FP32 buffers, sizes multiples of 4.
  UpdateControl(const Context& context, std::vector<at::Tensor> gradients);

  /// Queues the sum of squares of the gradients as they stand; the result [k] FP64 (to be added up, over ranks too).
  const at::Tensor& sum_squares();
  struct Rule {
    double max_norm = 0;  // 0: no clipping
    double beta1 = 0.9, beta2 = 0.98;
  };
  /// Queues the decision from sum_squares() and the sums of losses ([3] FP64: kernels::LossSums) with the learning rate
  /// of set_lr(). Skipped when nothing is scored, or loss or norm are not finite; then the place is looked for.
  void decide(const at::Tensor& loss_sums, const Rule& rule);
  /// Of the decisions to be queued.
  void set_lr(double lr);

  /// Updates done. Waits for the device.
  int64_t updates() const;
  void set_updates(int64_t updates);

  /// uint8 [sizeof(kernels::UpdateNumbers)], the same memory all the time.
  const at::Tensor& numbers() const { return numbers_; }

 private:
  Context context_;
  std::vector<at::Tensor> gradients_;
  at::Tensor squares_, workspace_, numbers_, lr_;
  Upload lr_upload_;
};

}  // namespace esm::ops
