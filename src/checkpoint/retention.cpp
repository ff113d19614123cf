#include "checkpoint/retention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace esm::checkpoint {

std::optional<StoredStep> best_of(std::span<const StoredStep> complete) {
  std::optional<StoredStep> best;
  for (const StoredStep& stored : complete) {
    if (!stored.metric.has_value() || !std::isfinite(*stored.metric)) continue;
    const bool better = !best.has_value() || *stored.metric < *best->metric ||
                        (*stored.metric == *best->metric && stored.step < best->step);
    if (better) best = stored;
  }
  return best;
}

std::vector<int64_t> steps_to_remove(std::span<const StoredStep> complete, const RetentionPolicy& policy,
                                     int64_t just_saved) {
  ESM_CHECK(policy.keep_last >= 1, "keep_last is {}", policy.keep_last);
  std::vector<StoredStep> newest_first(complete.begin(), complete.end());
  std::sort(newest_first.begin(), newest_first.end(),
            [](const StoredStep& a, const StoredStep& b) { return a.step > b.step; });
  const std::optional<StoredStep> best = best_of(complete);
  std::vector<int64_t> remove;
  for (size_t i = 0; i < newest_first.size(); ++i) {
    const StoredStep& stored = newest_first[i];
    const bool kept = static_cast<int64_t>(i) < policy.keep_last || stored.pinned || stored.step == just_saved ||
                      (policy.keep_every > 0 && stored.step % policy.keep_every == 0) ||
                      (policy.keep_best && best.has_value() && stored.step == best->step);
    if (!kept) remove.push_back(stored.step);
  }
  std::reverse(remove.begin(), remove.end());
  return remove;
}

}  // namespace esm::checkpoint
