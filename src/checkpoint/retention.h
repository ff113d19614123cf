// Which checkpoints may go.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace esm::checkpoint {

struct RetentionPolicy {
  int64_t keep_last = 2;   // newest ones by step number; >= 1
  int64_t keep_every = 0;  // also the steps that are multiples of this; 0: off
  bool keep_best = true;   // also the one with the lowest metric
};

/// A complete checkpoint of ours.
struct StoredStep {
  int64_t step = 0;
  std::optional<double> metric;
  bool pinned = false;
  std::string path = {};
};

/// The one with the lowest metric, the earliest of equals; nothing when none has a (finite) metric.
std::optional<StoredStep> best_of(std::span<const StoredStep> complete);

/// Steps to remove, oldest first: those that no rule keeps. `sound_step`, known to be sound, is always kept.
std::vector<int64_t> steps_to_remove(std::span<const StoredStep> complete, const RetentionPolicy& policy,
                                     int64_t sound_step);

}  // namespace esm::checkpoint
