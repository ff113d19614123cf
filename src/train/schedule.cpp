#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace esm::train {
namespace {

// Share of the way from `begin` to `end`, within [0, 1]; a way of no length has been gone.
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return step >= begin ? 1.0 : 0.0;
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

double linear(double share, double low) { return 1.0 - (1.0 - low) * share; }

}  // namespace

double schedule_factor(const ScheduleConfig& config, int64_t step, int64_t total) {
  if (config.total_steps > 0) total = config.total_steps;
  const int64_t warmup = config.warmup_steps;
  const double low = config.min_ratio;
  if (step < warmup) {
    const int64_t done = config.kind == ScheduleKind::kEsm2 ? step : step + 1;
    return static_cast<double>(done) / static_cast<double>(warmup);
  }
  switch (config.kind) {
    case ScheduleKind::kEsm2:
      return linear(progress(step, warmup, static_cast<int64_t>(0.9 * static_cast<double>(total))), low);
    case ScheduleKind::kLinear: return linear(progress(step, warmup, total), low);
    case ScheduleKind::kCosine:
      return low + (1.0 - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step, warmup, total)));
    case ScheduleKind::kWsd: {
      const int64_t decay = config.decay_steps > 0 ? config.decay_steps : std::max<int64_t>(1, total / 10);
      return linear(progress(step, std::max(warmup, total - decay), total), low);
    }
    case ScheduleKind::kConstant: return 1.0;
  }
  return 1.0;
}

}  // namespace esm::train
