#include "precision/amax_history.h"

#include <algorithm>

#include "base/check.h"

namespace esm::precision {

void record_amax(const kernels::AmaxTables& tables, int64_t tensor, float amax) {
  float& pending = tables.pending[tensor];
  pending = kernels::float_of(std::max(kernels::amax_bits(pending), kernels::amax_bits(amax)));
}

float measured_scale(const kernels::DelayedRule& rule, float amax) {
  return kernels::tensor_scale(amax, rule.greatest, rule.margin, 0.0f);
}

void close_step(const kernels::AmaxTables& tables, std::span<const kernels::DelayedRule> rules, int64_t step) {
  ESM_CHECK(static_cast<int64_t>(rules.size()) == tables.tensors, "{} rules for {} amax histories", rules.size(),
            tables.tensors);
  ESM_CHECK(tables.steps > 0, "amax histories of {} steps", tables.steps);
  ESM_CHECK(step >= 0, "amax histories: step {} closed", step);
  ESM_CHECK(step == *tables.closed, "amax histories: step {} closed where step {} is the next", step, *tables.closed);
  const int64_t slot = step % tables.steps, newest = (step + tables.steps - 1) % tables.steps;
  for (int64_t t = 0; t < tables.tensors; ++t) {
    float* history = tables.history + t * tables.steps;
    const float last = history[newest];  // 0 before the first entry
    history[slot] = 0.0f;                // falls out of the window
    const float others = *std::max_element(history, history + tables.steps);
    const kernels::ClosedAmax result =
        kernels::close_amax(rules[static_cast<size_t>(t)], tables.pending[t], others, last, tables.scale[t]);
    history[slot] = result.entry;
    tables.scale[t] = result.scale;
    tables.inverse[kernels::kInverseStride * t] = result.scale > 0.0f ? kernels::inverse_power(result.scale) : 0.0f;
    tables.nonfinite[t] += result.counted ? 1 : 0;
    tables.pending[t] = 0.0f;
  }
  ++*tables.closed;
}

std::vector<NonfiniteAmax> new_nonfinite(std::span<const int32_t> before, std::span<const int32_t> now,
                                         std::span<const std::string> names) {
  ESM_CHECK(now.size() == names.size() && (before.empty() || before.size() == now.size()),
            "counts of {} and {} tensors with {} names", before.size(), now.size(), names.size());
  std::vector<NonfiniteAmax> result;
  for (size_t t = 0; t < now.size(); ++t)
    if (const int64_t count = now[t] - (before.empty() ? 0 : before[t]); count > 0) result.push_back({names[t], count});
  return result;
}

std::string text(std::span<const NonfiniteAmax> tensors) {
  constexpr size_t kNamed = 8;
  if (tensors.empty()) return {};
  std::string line = "amax not finite, last finite scale kept:";
  for (size_t i = 0; i < std::min(tensors.size(), kNamed); ++i)
    line += fmt::format("{} {} ({})", i == 0 ? "" : ",", tensors[i].name, tensors[i].count);
  if (tensors.size() > kNamed) line += fmt::format(" and {} more", tensors.size() - kNamed);
  return line;
}

}  // namespace esm::precision
