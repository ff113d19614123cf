#include "ops/update.h"

#include <cmath>
#include <cstring>

#include "device/phase_clock.h"
#include "kernels/adamw_math.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/place.h"

namespace esm::ops {
namespace {

using kernels::UpdateNumbers;

/// Sums of one launch each.
at::Tensor squares_for(const Context& context, size_t tensors) {
  const int64_t sums = context.on_cuda() ? cuda::sums_of_squares(tensors) : 1;
  return at::empty({sums}, options(context, at::kDouble));
}

at::Tensor square_workspace(const Context& context) {
  return context.on_cuda() ? at::empty({cuda::sum_of_squares_workspace()}, options(context, at::kByte)) : at::Tensor();
}

void queue_squares(const Context& context, const std::vector<at::Tensor>& tensors, const at::Tensor& workspace,
                   const at::Tensor& squares) {
  if (context.on_cuda()) return cuda::sum_of_squares(context, tensors, workspace, squares);
  const device::Phase phase(context, "gradient norm");
  double sum = 0;
  for (const at::Tensor& tensor : tensors) sum += cpu::sum_of_squares(tensor.numel(), data<float>(tensor));
  *data<double>(squares) = sum;
}

/// [3] FP64.
kernels::LossSums losses_of(const at::Tensor& sums) {
  const double* values = data<double>(sums);
  return {.loss = values[0], .scored = values[1], .correct = values[2]};
}

kernels::ClipResult clip(double squares, const kernels::LossSums& losses, double max_norm) {
  kernels::ClipResult result{.losses = losses};
  if (losses.scored <= 0) return result;
  const double per_row = 1.0 / losses.scored;
  result.grad_norm = std::sqrt(squares) * per_row;
  if (!std::isfinite(losses.loss * per_row) || !std::isfinite(result.grad_norm)) return result;
  const double factor = max_norm > 0 ? std::min(1.0, max_norm / (result.grad_norm + 1e-6)) : 1.0;
  result.skip = 0;
  result.grad_scale = static_cast<float>(per_row * factor);
  return result;
}

uint64_t first_nonfinite(const std::vector<at::Tensor>& tensors) {
  for (size_t b = 0; b < tensors.size(); ++b) {
    const float* x = data<float>(tensors[b]);
    for (int64_t i = 0; i < tensors[b].numel(); ++i)
      if (!std::isfinite(x[i])) return static_cast<uint64_t>(b) << kernels::kBufferShift | static_cast<uint64_t>(i);
  }
  return kernels::kAllFinite;
}

/// A struct in host memory as a tensor where the context works; waits.
template <class T>
at::Tensor to_bytes(const Context& context, const T& value) {
  const at::Tensor here = at::empty({static_cast<int64_t>(sizeof value)}, at::kByte);
  std::memcpy(here.data_ptr(), &value, sizeof value);
  return context.on_cuda() ? here.to(device_of(context)) : here;
}

}  // namespace

double sum_of_squares(const Context& context, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) on_cuda(context, "sum_of_squares", {tensor});
  const at::Tensor squares = squares_for(context, tensors.size());
  queue_squares(context, tensors, square_workspace(context), squares);
  const at::Tensor here = squares.cpu();
  double sum = 0;
  for (int64_t i = 0; i < here.numel(); ++i) sum += data<double>(here)[i];
  return sum;
}

kernels::AdamwDynamic adamw_numbers(int64_t updates, double lr, double beta1, double beta2, double grad_scale) {
  kernels::AdamwDynamic numbers{.updates = updates, .lr = lr, .grad_scale = static_cast<float>(grad_scale), .skip = 0};
  kernels::set_bias_correction(numbers, beta1, beta2);
  return numbers;
}

at::Tensor adamw_numbers_tensor(const Context& context, const kernels::AdamwDynamic& numbers) {
  return to_bytes(context, UpdateNumbers{.adamw = numbers});
}

UpdateControl::UpdateControl(const Context& context, std::vector<at::Tensor> gradients)
    : context_(context),
      gradients_(std::move(gradients)),
      squares_(squares_for(context, gradients_.size())),
      workspace_(square_workspace(context)),
      numbers_(to_bytes(context, UpdateNumbers{})),
      lr_upload_(context) {
  for (const at::Tensor& gradient : gradients_) on_cuda(context_, "gradient norm", {gradient});
  set_lr(0);
}

const at::Tensor& UpdateControl::sum_squares() {
  queue_squares(context_, gradients_, workspace_, squares_);
  return squares_;
}

void UpdateControl::decide(const at::Tensor& loss_sums, const Rule& rule) {
  if (on_cuda(context_, "decide", {loss_sums})) {
    cuda::decide_update(context_, {.gradients = gradients_,
                                   .squares = squares_,
                                   .loss_sums = loss_sums,
                                   .lr = lr_,
                                   .max_norm = rule.max_norm,
                                   .beta1 = rule.beta1,
                                   .beta2 = rule.beta2,
                                   .numbers = numbers_});
    return;
  }
  auto& numbers = *static_cast<UpdateNumbers*>(numbers_.data_ptr());
  numbers.clip = clip(*data<double>(squares_), losses_of(loss_sums), rule.max_norm);
  numbers.first_nonfinite = numbers.clip.skip != 0 ? first_nonfinite(gradients_) : kernels::kAllFinite;
  if (numbers.clip.skip != 0) {
    numbers.adamw.skip = 1;
    numbers.adamw.grad_scale = 0;
    return;
  }
  double lr;
  std::memcpy(&lr, lr_.data_ptr(), sizeof lr);
  numbers.adamw = adamw_numbers(numbers.adamw.updates + 1, lr, rule.beta1, rule.beta2, 0);
  numbers.adamw.grad_scale = numbers.clip.grad_scale;
}

void UpdateControl::set_lr(double lr) {
  std::memcpy(lr_upload_.begin(sizeof lr), &lr, sizeof lr);
  lr_ = lr_upload_.finish();
}

int64_t UpdateControl::updates() const {
  const at::Tensor here = numbers_.cpu();
  return static_cast<const UpdateNumbers*>(here.data_ptr())->adamw.updates;
}

void UpdateControl::set_updates(int64_t updates) {
  numbers_.copy_(to_bytes(context_, UpdateNumbers{.adamw = {.updates = updates}}));
}

}  // namespace esm::ops
