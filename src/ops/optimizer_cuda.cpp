// Casts, sums of squares, AdamW.
#include <algorithm>
#include <cmath>

#include "device/cuda_check.h"
#include "device/cuda_queue.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/reduce.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"
#include "ops/place.h"

namespace esm::ops::cuda {

void cast(const Context& context, const at::Tensor& from, const at::Tensor& to) {
  ESM_CUDA(kernels::launch(
      kernels::CastArgs{
          .from_dtype = dtype_of(from), .to_dtype = dtype_of(to), .n = from.numel(), .from = raw(from), .to = raw(to)},
      context.stream()));
}

double sum_of_squares(const Context& context, std::span<const at::Tensor> tensors) {
  using Args = kernels::SumOfSquaresArgs;
  const size_t launches = (tensors.size() + Args::kMaxBuffers - 1) / Args::kMaxBuffers;
  const at::Tensor sums = at::empty({static_cast<int64_t>(launches)}, options(context, at::kDouble));
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(kernels::sum_of_squares_workspace())}, options(context, at::kByte));
  for (size_t i = 0; i < launches; ++i) {
    const auto some = tensors.subspan(i * Args::kMaxBuffers,
                                      std::min<size_t>(Args::kMaxBuffers, tensors.size() - i * Args::kMaxBuffers));
    Args args{.n_buffers = static_cast<int>(some.size()),
              .sum = sums.data_ptr<double>() + i,
              .workspace = workspace.data_ptr()};
    for (size_t k = 0; k < some.size(); ++k) {
      args.buffers[k] = pointer<float>(some[k]);
      args.sizes[k] = some[k].numel();
    }
    ESM_CUDA(kernels::launch(args, context.stream()));
  }
  const at::Tensor here = sums.cpu();
  double total = 0;
  for (size_t i = 0; i < launches; ++i) total += here.const_data_ptr<double>()[i];
  return total;
}

void adamw(const Context& context, const AdamWArgs& a) {
  const double step = static_cast<double>(a.step);
  const kernels::AdamwDynamic dynamic{.updates = a.step,
                                      .lr = a.lr,
                                      .step_lr = a.lr / (1 - std::pow(a.beta1, step)),
                                      .inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(a.beta2, step))),
                                      .grad_scale = static_cast<float>(a.grad_scale),
                                      .skip = 0};
  auto* on_device = context.cuda->scalars.as<kernels::AdamwDynamic>();
  // From pageable memory: the call returns when the few bytes have been taken over.
  ESM_CUDA(cudaMemcpyAsync(on_device, &dynamic, sizeof dynamic, cudaMemcpyHostToDevice, context.stream()));
  kernels::AdamwArgs args{.master_format = kernels::MasterFormat::kF32,
                          .moment_format = kernels::MomentFormat::kF32,
                          .master = pointer<float>(a.master),
                          .compute = static_cast<uint16_t*>(raw(a.compute)),
                          .exp_avg = raw(a.exp_avg),
                          .exp_avg_sq = raw(a.exp_avg_sq),
                          .grad = pointer<float>(a.grad),
                          .n = a.master.numel(),
                          .beta1 = static_cast<float>(a.beta1),
                          .beta2 = static_cast<float>(a.beta2),
                          .one_minus_beta1 = static_cast<float>(1 - a.beta1),
                          .one_minus_beta2 = static_cast<float>(1 - a.beta2),
                          .eps = static_cast<float>(a.eps),
                          .dynamic = on_device};
  args.group[0] = {.lr_factor = 1, .weight_decay = a.weight_decay};
  ESM_CUDA(kernels::launch(args, context.stream()));
}

}  // namespace esm::ops::cuda
