#include "ops/grad_norm.h"

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"

namespace esm::ops {

double sum_of_squares(const Context& context, std::span<const at::Tensor> tensors) {
  double sum = 0;
  for (const at::Tensor& tensor : tensors)
    if (!on_cuda(context, "sum_of_squares", {tensor})) sum += cpu::sum_of_squares(tensor.numel(), data<float>(tensor));
  return context.on_cuda() ? cuda::sum_of_squares(context, tensors) : sum;
}

double sum_of_squares(const Context& context, const at::Tensor& flat) {
  return sum_of_squares(context, std::span(&flat, 1));
}

}  // namespace esm::ops
