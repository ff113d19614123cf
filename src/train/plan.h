// `esmtrain plan`: memory, arithmetic and disk of a run, before it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/memory_report.h"

namespace esm::train {

struct CardFits {
  PlanPlace place;
  Fits tokens{};
};

struct Plan {
  PlanPlace place;
  MemoryPlan memory;
  std::vector<CardFits> cards;  // the place, or without a device and without a wish the usual ones
  double effective_seqlen = 0;  // of protein lengths up to data.max_tokens
  double flops_per_token = 0;   // train/flops.h
  double recompute_flops = 0;   // a token, on top
  int64_t disk_bytes = 0;       // checkpoint.keep_last checkpoints and the one being written

  bool fits() const { return memory.peak_bytes() <= place.memory_bytes; }
};

/// The model's shape comes from config.init_from, if there is one. card_bytes: memory of the device to plan for; none:
/// that of planned_place(config). Throws ConfigError, and what opening config.init_from throws.
Plan make_plan(RunConfig config, std::optional<int64_t> card_bytes, const config::Origins& origins);

}  // namespace esm::train
