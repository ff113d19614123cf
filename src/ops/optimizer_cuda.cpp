// Casts, the decision on an update, AdamW.
#include <algorithm>

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/clip.h"
#include "kernels/reduce.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {

void cast(const Context& context, const at::Tensor& from, const at::Tensor& to) {
  ESM_CUDA(kernels::launch(
      kernels::CastArgs{
          .from_dtype = dtype_of(from), .to_dtype = dtype_of(to), .n = from.numel(), .from = raw(from), .to = raw(to)},
      context.stream()));
}

int64_t sums_of_squares(size_t tensors) {
  constexpr size_t kEach = kernels::SumOfSquaresArgs::kMaxBuffers;
  return static_cast<int64_t>((tensors + kEach - 1) / kEach);
}

int64_t sum_of_squares_workspace() { return static_cast<int64_t>(kernels::sum_of_squares_workspace()); }

namespace {

/// Calls body(first, some) for at most `most` tensors at a time.
template <class Body>
void in_parts(std::span<const at::Tensor> tensors, size_t most, const Body& body) {
  for (size_t first = 0; first < tensors.size(); first += most)
    body(first, tensors.subspan(first, std::min(most, tensors.size() - first)));
}

template <class Args>
void set_buffers(Args& args, std::span<const at::Tensor> tensors) {
  args.n_buffers = static_cast<int>(tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    args.buffers[k] = pointer<float>(tensors[k]);
    args.sizes[k] = tensors[k].numel();
  }
}

kernels::UpdateNumbers* numbers_of(const at::Tensor& tensor) {
  return static_cast<kernels::UpdateNumbers*>(raw(tensor));
}

}  // namespace

void sum_of_squares(const Context& context, std::span<const at::Tensor> tensors, const at::Tensor& workspace,
                    const at::Tensor& squares) {
  const device::Phase phase(context, "gradient norm");
  double* sum = pointer<double>(squares);
  in_parts(tensors, kernels::SumOfSquaresArgs::kMaxBuffers, [&](size_t, std::span<const at::Tensor> some) {
    kernels::SumOfSquaresArgs args{.sum = sum++, .workspace = raw(workspace)};
    set_buffers(args, some);
    ESM_CUDA(kernels::launch(args, context.stream()));
  });
}

void decide_update(const Context& context, const DecideUpdate& a) {
  kernels::UpdateNumbers* numbers = numbers_of(a.numbers);
  ESM_CUDA(
      kernels::launch(kernels::ClipArgs{.n_sums = static_cast<int>(a.squares.numel()),
                                        .sums_of_squares = pointer<double>(a.squares),
                                        .losses = reinterpret_cast<kernels::LossSums*>(pointer<double>(a.loss_sums)),
                                        .max_norm = a.max_norm,
                                        .result = &numbers->clip},
                      context.stream()));
  ESM_CUDA(cudaMemsetAsync(&numbers->first_nonfinite, 0xff, sizeof numbers->first_nonfinite, context.stream()));
  in_parts(a.gradients, kernels::FirstNonfiniteArgs::kMaxBuffers, [&](size_t first, std::span<const at::Tensor> some) {
    kernels::FirstNonfiniteArgs args{
        .wanted = &numbers->clip.skip, .first_buffer = static_cast<int>(first), .first = &numbers->first_nonfinite};
    set_buffers(args, some);
    ESM_CUDA(kernels::launch(args, context.stream()));
  });
  ESM_CUDA(kernels::launch(kernels::AdamwPrepareArgs{.lr = static_cast<const double*>(raw(a.lr)),
                                                     .clip = &numbers->clip,
                                                     .beta1 = a.beta1,
                                                     .beta2 = a.beta2,
                                                     .dynamic = &numbers->adamw},
                           context.stream()));
}

void adamw(const Context& context, const AdamWArgs& a) {
  const device::Phase phase(context, "AdamW");
  kernels::AdamwArgs args{.formats = a.formats,
                          .master = pointer<float>(a.master),
                          .compute = static_cast<uint16_t*>(raw(a.compute)),
                          .remainder = static_cast<uint16_t*>(raw(a.remainder)),
                          .exp_avg = raw(a.exp_avg),
                          .exp_avg_sq = raw(a.exp_avg_sq),
                          .exp_avg_scale = pointer<float>(a.exp_avg_scale),
                          .exp_avg_sq_scale = pointer<float>(a.exp_avg_sq_scale),
                          .grad = pointer<float>(a.grad),
                          .n = a.grad.numel(),
                          .groups = pointer<uint8_t>(a.groups),
                          .beta1 = static_cast<float>(a.beta1),
                          .beta2 = static_cast<float>(a.beta2),
                          .one_minus_beta1 = static_cast<float>(1 - a.beta1),
                          .one_minus_beta2 = static_cast<float>(1 - a.beta2),
                          .eps = static_cast<float>(a.eps),
                          .dynamic = &numbers_of(a.numbers)->adamw,
                          .seed = a.seed,
                          .random_offset = a.random_offset};
  static_assert(kernels::AdamwArgs::kMaxGroups == AdamWArgs::kMaxGroups &&
                kernels::AdamwArgs::kGroupElements == AdamWArgs::kGroupElements);
  for (size_t g = 0; g < a.group.size(); ++g)
    args.group[g] = {.lr_factor = a.group[g].lr_factor, .weight_decay = a.group[g].weight_decay};
  ESM_CUDA(kernels::launch(args, context.stream()));
}

}  // namespace esm::ops::cuda
