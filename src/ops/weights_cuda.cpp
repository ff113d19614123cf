#include "kernels/weights.h"

#include "device/cuda_check.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {

void split_weights(const Context& context, const at::Tensor& weights, const at::Tensor& bf16,
                   const at::Tensor& remainder) {
  ESM_CUDA(kernels::launch(kernels::SplitWeightsArgs{.n = weights.numel(),
                                                     .weights = pointer<float>(weights),
                                                     .bf16 = static_cast<uint16_t*>(raw(bf16)),
                                                     .remainder = static_cast<uint16_t*>(raw(remainder))},
                           context.stream()));
}

void join_weights(const Context& context, const at::Tensor& bf16, const at::Tensor& remainder,
                  const at::Tensor& weights) {
  ESM_CUDA(kernels::launch(kernels::JoinWeightsArgs{.n = weights.numel(),
                                                    .bf16 = static_cast<const uint16_t*>(raw(bf16)),
                                                    .remainder = static_cast<const uint16_t*>(raw(remainder)),
                                                    .weights = pointer<float>(weights)},
                           context.stream()));
}

}  // namespace esm::ops::cuda
