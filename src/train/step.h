// One optimizer step: data -> forward -> loss -> gradients -> reduce -> clip -> update.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "data/batch.h"
#include "dist/comm.h"
#include "models/model.h"
#include "ops/download.h"
#include "train/optimizer.h"
#include "train/run_config.h"

namespace esm::train {

struct StepOutcome {
  int64_t step = 0;       // done by then, this one included
  models::LossSums sums;  // of the global batch
  double grad_norm = 0;   // of the mean gradient, before clipping
  double lr = 0;
  int64_t tokens = 0;  // real tokens of the global batch
  int64_t padded_tokens = 0;
  int64_t updates = 0;    // of the weights, this one included
  bool skipped = false;   // weights left alone: nothing scored, or something not finite
  std::string nonfinite;  // what was not finite: "loss", or the name of a parameter

  /// Mean over scored tokens, nats; NaN when nothing was scored.
  double loss() const;
};

/// Steps on their way: on a CUDA device a step is queued long before it is done, and the host prepares the next ones
/// meanwhile.
class StepQueue {
 public:
  /// Steps that may be waiting to be read.
  static constexpr int64_t kSlots = 4;

  StepQueue(const Context& context, const Optimizer& optimizer)
      : optimizer_(optimizer), download_(context, sizeof(kernels::UpdateNumbers), kSlots) {}

  /// `known`: what the host knows of a step that has just been queued.
  void push(const StepOutcome& known);
  int64_t pending() const { return download_.pending(); }
  /// The oldest step; waits until it is done.
  StepOutcome pop();

 private:
  const Optimizer& optimizer_;
  ops::Download download_;
  std::deque<StepOutcome> known_;
};

class Fp8Watch;  // train/fp8_watch.h

/// Everything a step touches; owned by the trainer.
struct StepParts {
  models::Model& model;
  std::function<void(data::Batch&)> next_batch;  // from the loader
  Optimizer& optimizer;
  StepQueue& queue;
  dist::Comm& comm;
  const RunConfig& config;
  Fp8Watch* watch = nullptr;  // may be missing
};

/// Queues step number `step` (0 for the first); its outcome comes out of the queue. The weights change only if loss and
/// gradients are finite everywhere, and all ranks decide that from the same reduced numbers.
void train_step(const StepParts& parts, int64_t step);

}  // namespace esm::train
