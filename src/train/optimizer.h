// AdamW over the flat storage of a model's units, with parameter groups.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/context.h"
#include "nn/storage.h"
#include "ops/adamw.h"
#include "ops/replay.h"
#include "ops/update.h"
#include "train/run_config.h"

namespace esm::train {

class Optimizer {
 public:
  struct Options {
    uint64_t seed = 0;    // of stochastic rounding
    bool graphs = false;  // on a CUDA device updates are replayed as a graph
  };
  /// Allocates both moments of every unit, in the formats of the units. Throws ConfigError when a prefix of
  /// lr_multipliers matches no parameter.
  Optimizer(const Context& context, std::span<nn::UnitStorage* const> units, const OptimizerSection& config,
            const Options& options);
  Optimizer(const Context& context, std::span<nn::UnitStorage* const> units, const OptimizerSection& config)
      : Optimizer(context, units, config, Options{}) {}

  /// Queues one update from gradients of the summed loss and loss_sums ([3] FP64, models::Model): norm of the mean
  /// gradient, clipping to clip_norm (0: none), master weights and moments, then the compute copies; nothing of it when
  /// nothing is scored or something is not finite. Waits for nothing.
  void update(const at::Tensor& loss_sums, double lr, double clip_norm);
  /// kernels::UpdateNumbers of the last update, as bytes where the model works.
  const at::Tensor& numbers() const { return control_.numbers(); }

  /// Full name of the parameter at kernels::UpdateNumbers::first_nonfinite; "" when all is finite.
  std::string parameter_at(uint64_t place) const;

  /// Updates done; part of the state of a run (bias correction). Waits for the device.
  int64_t updates() const { return control_.updates(); }
  void set_updates(int64_t updates) { control_.set_updates(updates); }

 private:
  struct Unit {
    nn::UnitStorage* storage;
    std::vector<ops::AdamWGroup> group;
    at::Tensor groups;  // uint8 [flat_numel / 64], group of each 64 elements
    int64_t first;      // its first element among those of all units, for stochastic rounding
  };
  Unit make_unit(nn::UnitStorage& storage, std::vector<bool>& prefix_used) const;
  ops::AdamWGroup group_of(const nn::ParamSpec& spec, std::vector<bool>& prefix_used) const;

  Context context_;
  OptimizerSection config_;
  uint64_t seed_;
  std::vector<std::pair<std::string, double>> multipliers_;
  std::vector<Unit> units_;
  ops::UpdateControl control_;
  ops::Replay replay_;
};

}  // namespace esm::train
