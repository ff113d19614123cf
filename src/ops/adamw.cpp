#include "ops/adamw.h"

#include "device/phase_clock.h"
#include "kernels/update.h"
#include "ops/adamw_cpu.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/parallel.h"

namespace esm::ops {
namespace {

using precision::MasterFormat;
using precision::MomentFormat;

void check(const AdamWArgs& a) {
  constexpr int64_t kScaled = precision::kScaleElements;
  const int64_t n = a.grad.numel();
  const auto has = [](const at::Tensor& x, int64_t size) { return x.defined() && x.numel() == size; };
  const auto [master, moments] = a.formats;
  ESM_CHECK(n % AdamWArgs::kGroupElements == 0, "adamw of {} elements, not a multiple of 64", n);
  ESM_CHECK(has(master == MasterFormat::kF32 ? a.master : a.compute, n) &&
                (!a.compute.defined() || has(a.compute, n)) &&
                (master != MasterFormat::kBF16Remainder || has(a.remainder, n)),
            "adamw's weights are not {} elements in their format", n);
  ESM_CHECK(has(a.exp_avg, n) && has(a.exp_avg_sq, n), "adamw's moments are not {} elements", n);
  ESM_CHECK(moments != MomentFormat::kE4M3 || (has(a.exp_avg_scale, (n + kScaled - 1) / kScaled) &&
                                               has(a.exp_avg_sq_scale, (n + kScaled - 1) / kScaled)),
            "adamw of {} elements with one-byte moments wants a scale for each 128", n);
  ESM_CHECK(!a.group.empty() && a.group.size() <= AdamWArgs::kMaxGroups, "adamw with {} groups", a.group.size());
  ESM_CHECK(!a.groups.defined() || a.groups.numel() == n / AdamWArgs::kGroupElements, "adamw's groups");
  ESM_CHECK(a.random_offset % 4 == 0, "adamw's random offset {}", a.random_offset);
}

void* moment(const at::Tensor& x, MomentFormat format) {
  switch (format) {
    case MomentFormat::kF32: return data<float>(x);
    case MomentFormat::kBF16: return data<uint16_t>(x);
    case MomentFormat::kE4M3: return data<uint8_t>(x);
  }
  return nullptr;
}

cpu::Adamw on_host(const AdamWArgs& a, const kernels::AdamwDynamic& now) {
  cpu::Adamw args{.formats = a.formats,
                  .n = a.grad.numel(),
                  .master = data_or_null<float>(a.master),
                  .compute = data_or_null<uint16_t>(a.compute),
                  .remainder = data_or_null<uint16_t>(a.remainder),
                  .exp_avg = moment(a.exp_avg, a.formats.moments),
                  .exp_avg_sq = moment(a.exp_avg_sq, a.formats.moments),
                  .exp_avg_scale = data_or_null<float>(a.exp_avg_scale),
                  .exp_avg_sq_scale = data_or_null<float>(a.exp_avg_sq_scale),
                  .grad = data<float>(a.grad),
                  .groups = data_or_null<uint8_t>(a.groups),
                  .seed = a.seed,
                  .updates = now.updates,
                  .random_offset = a.random_offset};
  for (size_t g = 0; g < a.group.size(); ++g)
    args.scalars[g] = {.beta1 = static_cast<float>(a.beta1),
                       .one_minus_beta1 = static_cast<float>(1 - a.beta1),
                       .beta2 = static_cast<float>(a.beta2),
                       .one_minus_beta2 = static_cast<float>(1 - a.beta2),
                       .eps = static_cast<float>(a.eps),
                       .grad_scale = now.grad_scale,
                       .inv_sqrt_bias2 = now.inv_sqrt_bias2,
                       .decay = kernels::group_decay(now.lr, a.group[g].lr_factor, a.group[g].weight_decay),
                       .step_size = kernels::group_step_size(now.step_lr, a.group[g].lr_factor)};
  return args;
}

}  // namespace

void adamw(const Context& context, const AdamWArgs& a) {
  check(a);
  if (on_cuda(context, "adamw",
              {a.master, a.compute, a.remainder, a.grad, a.exp_avg, a.exp_avg_sq, a.exp_avg_scale, a.exp_avg_sq_scale,
               a.numbers, a.groups}))
    return cuda::adamw(context, a);
  const device::Phase phase(context, "AdamW");
  const kernels::AdamwDynamic now = static_cast<const kernels::UpdateNumbers*>(a.numbers.data_ptr())->adamw;
  if (now.skip != 0) return;
  const cpu::Adamw args = on_host(a, now);
  static_assert(row_grain(1) % kernels::kScaleElements == 0);
  parallel_ranges(args.n, row_grain(1), [&](int64_t begin, int64_t end) { cpu::adamw(args, begin, end); });
}

}  // namespace esm::ops
