#include "kernels/fp8_scales.h"

#include "checks/harness.h"

namespace esm::checks {
namespace {

using kernels::AmaxChoice;
using kernels::DelayedRule;

// Steps of delayed scaling against the same functions on the host, one tensor after the other: exact.
void close_steps(int64_t tensors, int64_t steps, int64_t rounds, Random& random, Report& report) {
  std::vector<DelayedRule> rules(static_cast<size_t>(tensors));
  for (size_t t = 0; t < rules.size(); ++t)
    rules[t] = {.greatest = t % 2 == 0 ? kernels::kMaxE4M3 : kernels::kMaxE5M2,
                .choice = t % 3 == 2 ? AmaxChoice::kMostRecent : AmaxChoice::kMax,
                .margin = static_cast<int>(t % 4) - 1};
  const size_t n = rules.size(), length = static_cast<size_t>(steps);
  std::vector<float> history(n * length), pending(n), scale(n), inverse(kernels::kInverseStride * n);
  std::vector<int32_t> nonfinite(n);
  int64_t closed = 0;
  const DeviceBuffer<float> device_history(history), device_scale(scale), device_inverse(inverse);
  DeviceBuffer<float> device_pending(pending);
  const DeviceBuffer<int32_t> device_nonfinite(nonfinite);
  const DeviceBuffer<int64_t> device_closed(std::vector<int64_t>{0});
  const DeviceBuffer<DelayedRule> device_rules(rules);
  const DeviceBuffer<uint32_t> arrived(std::vector<uint32_t>{0});
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& p : pending) p = random.below(8) == 0 ? 0.0f : std::exp2(random.uniform(-30.0f, 30.0f));
    pending[static_cast<size_t>(random.below(tensors))] = INFINITY;
    pending[static_cast<size_t>(random.below(tensors))] = NAN;
    device_pending.upload(pending);
    CHECK_CUDA(launch(kernels::CloseAmaxArgs{.tables = {.tensors = tensors,
                                                        .steps = steps,
                                                        .history = device_history.get(),
                                                        .pending = device_pending.get(),
                                                        .scale = device_scale.get(),
                                                        .inverse = device_inverse.get(),
                                                        .nonfinite = device_nonfinite.get(),
                                                        .closed = device_closed.get()},
                                             .rules = device_rules.get(),
                                             .arrived = arrived.get()},
                      nullptr));
    const size_t slot = static_cast<size_t>(closed % steps), newest = static_cast<size_t>((closed + steps - 1) % steps);
    for (size_t t = 0; t < n; ++t) {
      float* mine = &history[t * length];
      const float last = mine[newest];
      float others = 0;
      for (size_t i = 0; i < length; ++i) others = i == slot ? others : std::max(others, mine[i]);
      const kernels::ClosedAmax result = kernels::close_amax(rules[t], pending[t], others, last, scale[t]);
      mine[slot] = result.entry;
      scale[t] = result.scale;
      inverse[kernels::kInverseStride * t] = result.scale > 0 ? 1 / result.scale : 0.0f;
      nonfinite[t] += result.counted ? 1 : 0;
    }
    ++closed;
  }
  const std::string name = text("close amax, %lld tensors, %lld of %lld steps", static_cast<long long>(tensors),
                                static_cast<long long>(rounds), static_cast<long long>(steps));
  report.same(name + " history", device_history.download(), history);
  report.same(name + " scale", device_scale.download(), scale);
  report.same(name + " inverse", device_inverse.download(), inverse);
  report.same(name + " nonfinite", device_nonfinite.download(), nonfinite);
  report.same(name + " pending", device_pending.download(), std::vector<float>(n));
  report.same(name + " closed", device_closed.download(), {closed});
  report.same(name + " arrived", arrived.download(), {0u});
}

void measured(Random& random, Report& report) {
  std::vector<float> amax{0.0f, 0x1p-149f, 1.0f, 448.0f, 449.0f, 57344.0f, 3e38f, INFINITY, NAN};
  while (amax.size() < 1000) amax.push_back(std::exp2(random.uniform(-130.0f, 127.0f)));
  std::vector<float> scale(amax.size()), inverse(kernels::kInverseStride * amax.size());
  for (size_t i = 0; i < scale.size(); ++i) scale[i] = i % 2 == 0 ? 0.0f : 0.25f;
  const DeviceBuffer<float> device_amax(amax), device_scale(scale), device_inverse(inverse);
  CHECK_CUDA(launch(kernels::MeasuredScaleArgs{.n = static_cast<int64_t>(amax.size()),
                                               .amax = device_amax.get(),
                                               .greatest = kernels::kMaxE5M2,
                                               .margin = 1,
                                               .scale = device_scale.get(),
                                               .inverse = device_inverse.get()},
                    nullptr));
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = kernels::tensor_scale(amax[i], kernels::kMaxE5M2, 1, scale[i]);
    inverse[kernels::kInverseStride * i] = 1 / scale[i];
  }
  report.same("measured scale", device_scale.download(), scale);
  report.same("measured scale inverse", device_inverse.download(), inverse);
}

void product_factors(Report& report) {
  const DeviceBuffer<float> a(std::vector<float>{0.3f}), b(std::vector<float>{0x1.234p-20f}), factors(2);
  for (const float beta : {0.0f, 1.0f}) {
    CHECK_CUDA(launch(kernels::ProductFactorsArgs{.a = a.get(), .b = b.get(), .beta = beta, .factors = factors.get()},
                      nullptr));
    report.same(text("product factors, beta %g", beta), factors.download(), {0.3f * 0x1.234p-20f, beta});
  }
}

}  // namespace

void fp8_scales_checks(Random& random, Report& report) {
  close_steps(5, 1, 4, random, report);
  close_steps(331, 16, 40, random, report);
  close_steps(400, 1024, 6, random, report);
  measured(random, report);
  product_factors(report);
}

}  // namespace esm::checks
