#include "ops/cast.h"

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"

namespace esm::ops {

void cast(const Context& context, const at::Tensor& from, const at::Tensor& to) {
  ESM_CHECK(from.numel() == to.numel(), "cast of {} to {} elements", from.numel(), to.numel());
  if (on_cuda(context, "cast", {from, to})) return cuda::cast(context, from, to);
  if (from.scalar_type() == at::kFloat)
    cpu::to_bf16(from.numel(), data<float>(from), data<cpu::Bf16>(to));
  else
    cpu::to_float(from.numel(), data<cpu::Bf16>(from), data<float>(to));
}

}  // namespace esm::ops
