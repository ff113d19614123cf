#include "ops/weights.h"

#include "ops/adamw_cpu.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/parallel.h"

namespace esm::ops {
namespace {

void check_sizes(const at::Tensor& weights, const at::Tensor& bf16, const at::Tensor& remainder) {
  ESM_CHECK(bf16.numel() == weights.numel() && (!remainder.defined() || remainder.numel() == weights.numel()),
            "halves of {} weights: {} values{}", weights.numel(), bf16.numel(),
            remainder.defined() ? fmt::format(", {} remainders", remainder.numel()) : "");
}

}  // namespace

void split_weights(const Context& context, const at::Tensor& weights, const at::Tensor& bf16,
                   const at::Tensor& remainder) {
  check_sizes(weights, bf16, remainder);
  if (context.sketch) return;
  if (on_cuda(context, "split_weights", {weights, bf16, remainder}))
    return cuda::split_weights(context, weights, bf16, remainder);
  const float* from = data<float>(weights);
  uint16_t *high = data<uint16_t>(bf16), *low = data_or_null<uint16_t>(remainder);
  parallel_ranges(weights.numel(), row_grain(1), [&](int64_t begin, int64_t end) {
    cpu::split_weights(end - begin, from + begin, high + begin, low != nullptr ? low + begin : nullptr);
  });
}

void join_weights(const Context& context, const at::Tensor& bf16, const at::Tensor& remainder,
                  const at::Tensor& weights) {
  check_sizes(weights, bf16, remainder);
  if (context.sketch) return;
  if (on_cuda(context, "join_weights", {bf16, remainder, weights}))
    return cuda::join_weights(context, bf16, remainder, weights);
  const uint16_t *high = data<uint16_t>(bf16), *low = data_or_null<uint16_t>(remainder);
  float* to = data<float>(weights);
  parallel_ranges(weights.numel(), row_grain(1), [&](int64_t begin, int64_t end) {
    cpu::join_weights(end - begin, high + begin, low != nullptr ? low + begin : nullptr, to + begin);
  });
}

}  // namespace esm::ops
