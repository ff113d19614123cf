// Training steps by hand.
#pragma once
#include "models/model.h"
#include "train/step.h"

namespace esm::test {

/// One step on one batch, awaited.
inline train::StepOutcome one_step(const Context& context, models::Model& model, train::Optimizer& optimizer,
                                   const data::Batch& batch, double lr, double clip_norm = 1.0) {
  train::StepQueue queue(context, optimizer);
  model.begin_step();
  model.accumulate(batch);
  optimizer.update(model.loss_sums(), lr, clip_norm);
  queue.push({.lr = lr});
  return queue.pop();
}

}  // namespace esm::test
