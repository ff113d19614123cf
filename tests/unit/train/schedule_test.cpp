#include "train/schedule.h"

#include "support/catch.h"

using namespace esm::train;

namespace {
ScheduleConfig schedule(ScheduleKind kind, int64_t warmup, double min_ratio = 0.1) {
  ScheduleConfig config;
  config.kind = kind;
  config.warmup_steps = warmup;
  config.min_ratio = min_ratio;
  return config;
}
}  // namespace

// The formula of NVIDIA's recipe, written out again: s < W: s/W; s <= int(0.9 N): 1 - 0.9 (s - W)/(int(0.9 N) - W);
// 0.1.
TEST_CASE("esm2 schedule is the published one at every step") {
  const auto config = schedule(ScheduleKind::kEsm2, 200);
  constexpr int kTotal = 1500, kWarmup = 200, kDecayEnd = 1350;
  for (int s = 0; s <= kTotal; ++s) {
    const double expected = s < kWarmup      ? double(s) / kWarmup
                            : s <= kDecayEnd ? 1.0 - 0.9 * double(s - kWarmup) / (kDecayEnd - kWarmup)
                                             : 0.1;
    REQUIRE(schedule_factor(config, s, kTotal) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("schedules at their corners") {
  CHECK(schedule_factor(schedule(ScheduleKind::kLinear, 10), 0, 100) == Approx(0.1));
  CHECK(schedule_factor(schedule(ScheduleKind::kLinear, 10), 9, 100) == Approx(1.0));
  CHECK(schedule_factor(schedule(ScheduleKind::kLinear, 10, 0.0), 55, 100) == Approx(0.5));
  CHECK(schedule_factor(schedule(ScheduleKind::kLinear, 10, 0.0), 1000, 100) == 0.0);
  CHECK(schedule_factor(schedule(ScheduleKind::kCosine, 0, 0.2), 50, 100) == Approx(0.6));
  CHECK(schedule_factor(schedule(ScheduleKind::kCosine, 0, 0.2), 100, 100) == Approx(0.2));
  CHECK(schedule_factor(schedule(ScheduleKind::kConstant, 4), 1, 100) == Approx(0.5));
  CHECK(schedule_factor(schedule(ScheduleKind::kConstant, 4), 99, 100) == 1.0);
  auto wsd = schedule(ScheduleKind::kWsd, 10, 0.0);
  wsd.decay_steps = 20;
  CHECK(schedule_factor(wsd, 80, 100) == 1.0);
  CHECK(schedule_factor(wsd, 90, 100) == Approx(0.5));
  CHECK(schedule_factor(wsd, 100, 100) == 0.0);
  wsd.total_steps = 50;
  CHECK(schedule_factor(wsd, 40, 100) == Approx(0.5));
}

TEST_CASE("no schedule divides by a way of no length") {
  for (const auto kind : {ScheduleKind::kEsm2, ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd})
    for (const int64_t step : {0, 1, 5}) {
      const double factor = schedule_factor(schedule(kind, 1), step, 1);
      CHECK(factor >= 0.0);
      CHECK(factor <= 1.0);
    }
}
