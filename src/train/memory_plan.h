// What a run will hold in memory, by part, before it allocates anything and on any machine: model and optimizer are
// made on a sketch (device/context.h) by the very code that makes the real ones.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/run_config.h"

namespace esm::train {

/// Where a planned run works.
struct PlanPlace {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // all of it
  bool cuda = true;
  int compute_capability = 90;  // CUDA: 90 for 9.0
  int64_t threads = 1;          // CPU
};

/// The place that open_device(config) takes.
PlanPlace present_place(const RunConfig& config);
/// The same, but an H200 where config.device would take a CUDA device if there were one.
PlanPlace planned_place(const RunConfig& config);
/// CUDA devices of 40, 80, 141 and 192 GB.
std::span<const PlanPlace> usual_cards();

/// What a model is used for: without training there are no gradients, and nothing is kept for backward.
enum class Use { kTraining, kEvaluation };

struct MemoryPlan {
  /// In use from the end of the first step on. CUDA: with the context and what allocators add.
  std::vector<ops::MemoryPart> parts;
  int64_t step_bytes = 0;   // their sum
  int64_t start_bytes = 0;  // CUDA: in use in the first step at most, while GEMMs are timed; else 0
  int64_t parameters = 0;
  int64_t checkpoint_bytes = 0;  // of training

  int64_t peak_bytes() const { return std::max(step_bytes, start_bytes); }
};

/// Parts of the weights, gradients and optimizer states of `model`, by what they are, then model.memory(). All of what
/// a CPU run holds but for program, data and the moment of a checkpoint.
std::vector<ops::MemoryPart> memory_parts(models::Model& model);

/// The model is that of config.model, whatever config.init_from says. Throws ConfigError for one that cannot be,
/// DeviceError for what such a place cannot do.
MemoryPlan plan_memory(const RunConfig& config, const PlanPlace& place, Use use = Use::kTraining);

inline constexpr int64_t kMostTokens = 1 << 20;
/// Micro-batches that training has been run with; beyond, only memory is looked at.
inline constexpr int64_t kTriedTokens = 131072;
/// Largest data.tokens_per_batch (a multiple of 128 that holds data.max_tokens, at most kMostTokens) whose peak fits
/// into 98 % of the place's memory, for each enumerator of nn::Recompute; 0: none does. Throws as plan_memory().
using Fits = std::array<int64_t, 3>;
Fits what_fits(const RunConfig& config, const PlanPlace& place, Use use = Use::kTraining);

}  // namespace esm::train
