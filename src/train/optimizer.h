// AdamW over the flat storage of a model's units, with parameter groups.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/context.h"
#include "nn/storage.h"
#include "train/run_config.h"

namespace esm::train {

class Optimizer {
 public:
  /// Allocates both moments of every unit. Throws ConfigError when a prefix of lr_multipliers matches no parameter.
  Optimizer(const Context& context, std::span<nn::UnitStorage* const> units, const OptimizerSection& config);

  /// Sum of squares of all gradients as they stand; not finite when an element is not.
  double grad_sum_of_squares() const;
  /// Full name of a parameter whose gradient holds a NaN or an infinity, "" when there is none.
  std::string nonfinite_parameter() const;

  /// One update: master weights and moments from gradient * grad_scale, then the compute copies.
  void update(double lr, double grad_scale);

  /// Updates done; part of the state of a run (bias correction).
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  // Neighbouring parameters with equal settings, updated in one call.
  struct Run {
    nn::UnitStorage* unit;
    int64_t begin, end;  // elements of the flat buffers
    double lr_factor, weight_decay;
  };
  void add_runs(nn::UnitStorage& unit, std::vector<bool>& prefix_used);

  Context context_;
  std::vector<nn::UnitStorage*> units_;
  OptimizerSection config_;
  std::vector<std::pair<std::string, double>> multipliers_;
  std::vector<Run> runs_;
  int64_t updates_ = 0;
};

}  // namespace esm::train
