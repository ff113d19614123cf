#include "ops/adamw.h"

#include <cmath>

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"

namespace esm::ops {

void adamw(const Context& context, const AdamWArgs& a) {
  const int64_t n = a.master.numel();
  ESM_CHECK(a.grad.numel() == n && a.exp_avg.numel() == n && a.exp_avg_sq.numel() == n && a.step >= 1,
            "adamw wants four tensors of one length and a step from 1");
  if (on_cuda(context, "adamw", {a.master, a.grad, a.exp_avg, a.exp_avg_sq, a.compute})) return cuda::adamw(context, a);
  const double step = static_cast<double>(a.step);
  cpu::adamw({.n = n,
              .master = data<float>(a.master),
              .exp_avg = data<float>(a.exp_avg),
              .exp_avg_sq = data<float>(a.exp_avg_sq),
              .grad = data<float>(a.grad),
              .grad_scale = static_cast<float>(a.grad_scale),
              .decay = static_cast<float>(1 - a.lr * a.weight_decay),
              .step_size = static_cast<float>(a.lr / (1 - std::pow(a.beta1, step))),
              .root_correction = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, step))),
              .eps = static_cast<float>(a.eps),
              .one_minus_beta1 = static_cast<float>(1 - a.beta1),
              .beta2 = static_cast<float>(a.beta2),
              .one_minus_beta2 = static_cast<float>(1 - a.beta2)});
  if (a.compute.defined()) cpu::to_bf16(n, data<float>(a.master), data<cpu::Bf16>(a.compute));
}

}  // namespace esm::ops
