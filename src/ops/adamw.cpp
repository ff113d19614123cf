#include "ops/adamw.h"

#include <cmath>

#include "kernels/update.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"

namespace esm::ops {
namespace {

/// Calls body(begin, end, group) for runs of elements of one group.
template <class Body>
void for_each_run(const AdamWArgs& a, const Body& body) {
  const int64_t n = a.master.numel(), blocks = n / AdamWArgs::kGroupElements;
  const uint8_t* groups = data_or_null<uint8_t>(a.groups);
  for (int64_t begin = 0; begin < blocks;) {
    int64_t end = groups == nullptr ? blocks : begin + 1;
    while (end < blocks && groups[end] == groups[begin]) ++end;
    body(begin * AdamWArgs::kGroupElements, end * AdamWArgs::kGroupElements,
         a.group[groups == nullptr ? 0 : groups[begin]]);
    begin = end;
  }
}

}  // namespace

void adamw(const Context& context, const AdamWArgs& a) {
  const int64_t n = a.master.numel();
  ESM_CHECK(a.grad.numel() == n && a.exp_avg.numel() == n && a.exp_avg_sq.numel() == n, "adamw wants equal lengths");
  ESM_CHECK(n % AdamWArgs::kGroupElements == 0, "adamw of {} elements, not a multiple of 64", n);
  ESM_CHECK(!a.group.empty() && a.group.size() <= AdamWArgs::kMaxGroups, "adamw with {} groups", a.group.size());
  ESM_CHECK(!a.groups.defined() || a.groups.numel() == n / AdamWArgs::kGroupElements, "adamw's groups");
  if (on_cuda(context, "adamw", {a.master, a.grad, a.exp_avg, a.exp_avg_sq, a.compute, a.numbers, a.groups}))
    return cuda::adamw(context, a);
  const kernels::AdamwDynamic now = static_cast<const kernels::UpdateNumbers*>(a.numbers.data_ptr())->adamw;
  if (now.skip != 0) return;
  const double root_correction = std::sqrt(1 - std::pow(a.beta2, static_cast<double>(now.updates)));
  for_each_run(a, [&](int64_t begin, int64_t end, const AdamWGroup& group) {
    cpu::adamw({.n = end - begin,
                .master = data<float>(a.master) + begin,
                .exp_avg = data<float>(a.exp_avg) + begin,
                .exp_avg_sq = data<float>(a.exp_avg_sq) + begin,
                .grad = data<float>(a.grad) + begin,
                .grad_scale = now.grad_scale,
                .decay = static_cast<float>(1 - now.lr * group.lr_factor * group.weight_decay),
                .step_size = static_cast<float>(now.step_lr * group.lr_factor),
                .root_correction = static_cast<float>(root_correction),
                .eps = static_cast<float>(a.eps),
                .one_minus_beta1 = static_cast<float>(1 - a.beta1),
                .beta2 = static_cast<float>(a.beta2),
                .one_minus_beta2 = static_cast<float>(1 - a.beta2)});
  });
  if (a.compute.defined()) cpu::to_bf16(n, data<float>(a.master), data<cpu::Bf16>(a.compute));
}

}  // namespace esm::ops
