// One optimizer step: data -> forward -> loss -> gradients -> reduce -> clip -> update.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "data/batch.h"
#include "dist/comm.h"
#include "models/model.h"
#include "train/optimizer.h"
#include "train/run_config.h"

namespace esm::train {

/// Everything a step touches; owned by the trainer.
struct StepParts {
  models::Model& model;
  std::function<void(data::Batch&)> next_batch;  // from the loader
  Optimizer& optimizer;
  dist::Comm& comm;
  const RunConfig& config;
};

struct StepOutcome {
  models::LossSums sums;  // of the global batch
  double grad_norm = 0;   // of the mean gradient, before clipping
  double lr = 0;
  int64_t tokens = 0;  // real tokens of the global batch
  int64_t padded_tokens = 0;
  bool skipped = false;   // weights left alone: nothing scored, or something not finite
  std::string nonfinite;  // what was not finite: "loss", or the name of a parameter

  /// Mean over scored tokens, nats; NaN when nothing was scored.
  double loss() const;
};

/// Runs step number `step` (0 for the first). The weights change only if loss and gradients are finite everywhere, and
/// all ranks decide that from the same reduced numbers.
StepOutcome train_step(const StepParts& parts, int64_t step);

}  // namespace esm::train
