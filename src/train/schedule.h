// Learning rate as a pure function of the step, so that a resume can never make it jump.
#pragma once
#include <array>
#include <cstdint>

#include "config/field.h"

namespace esm::train {

enum class ScheduleKind { kEsm2, kLinear, kCosine, kWsd, kConstant };
constexpr auto enum_names(ScheduleKind) { return std::array{"esm2", "linear", "cosine", "wsd", "constant"}; }

struct ScheduleConfig {
  ESM_CONFIG(ScheduleConfig)
  ScheduleKind kind = ScheduleKind::kEsm2;
  ESM_FIELD(kind,
            "esm2: as published, warm-up from 0, linear to min_ratio over 90 % of the steps, then flat. linear, "
            "cosine: to min_ratio at the end. wsd: flat, then linear to min_ratio over the last decay_steps. constant.",
            config::Resume::kWarn)
  int64_t warmup_steps = 2000;
  ESM_FIELD(warmup_steps, "Steps of linear warm-up.", config::at_least(0), config::Resume::kWarn)
  int64_t total_steps = 0;
  ESM_FIELD(total_steps, "Steps the schedule is laid out for; 0: train.max_steps.", config::at_least(0),
            config::Resume::kWarn)
  int64_t decay_steps = 0;
  ESM_FIELD(decay_steps, "Steps of the final decay of wsd; 0: a tenth of the total.", config::at_least(0),
            config::Resume::kWarn)
  double min_ratio = 0.1;
  ESM_FIELD(min_ratio, "Learning rate at the end as a share of the peak.", config::between(0, 1), config::Resume::kWarn)
};

/// Factor on the peak learning rate for update number `step` (0, 1, 2, ...) of `total` updates.
///
/// esm2 is the schedule of the published training runs (spec: s < W: s / W; W <= s <= int(0.9 N):
/// 1 - 0.9 (s - W) / (int(0.9 N) - W) for min_ratio 0.1; then flat), whose first update has rate 0. The other kinds
/// warm up by (s + 1) / W.
double schedule_factor(const ScheduleConfig& config, int64_t step, int64_t total);

}  // namespace esm::train
