// What happens to numbers in quantized products, as a run goes on: statistics every so many steps, and amax values that
// were not finite. Read one step later, like everything of a step.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "models/model.h"
#include "ops/download.h"
#include "train/fp8_statistics.h"

namespace esm::train {

class Fp8Watch {
 public:
  /// every_steps: 0 for no statistics. Of a model without quantized products it watches nothing.
  Fp8Watch(const Context& context, models::Model& model, int64_t every_steps);

  /// Before the micro-batches of step number `step` (from 1).
  void begin_step(int64_t step);
  /// After them, and before Model::end_step().
  void queue();
  /// After Model::end_step(): the step is on its way.
  void finish();

  struct Seen {
    std::optional<StepStatistics> statistics;
    std::vector<std::string> nonfinite;  // "layers.3.fc1.x (2)": tensors and how often, since the last step
  };
  /// Of the oldest step; waits until it is done. scored: its scored tokens, by which gradients are divided.
  Seen pop(int64_t scored);

 private:
  struct Pending {
    int64_t step;
    bool watched;
  };
  StepStatistics decode(int64_t step, const double* values, double scored) const;

  models::Model& model_;
  ops::Scales* scales_;
  int64_t every_steps_, layers_;
  std::optional<ops::Download> observations_, nonfinite_;
  std::deque<Pending> pending_;
  bool watching_ = false;
  int64_t step_ = 0;
  std::vector<int32_t> counts_;  // of amax values that were not finite, so far
};

}  // namespace esm::train
