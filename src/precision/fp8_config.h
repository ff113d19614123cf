// The section `fp8` of a run's configuration: what quantized recipes can be told.
#pragma once
#include <cstdint>
#include <optional>

#include "config/field.h"
#include "precision/recipe.h"

namespace esm::precision {

struct Fp8Section {
  ESM_CONFIG(Fp8Section)
  int64_t history_steps = DelayedScaling{}.history_steps;
  ESM_FIELD(history_steps,
            "Steps whose amax is remembered for the scales to come, 4 bytes a tensor and step. Only fp8_delayed has "
            "such scales.",
            config::between(1, 65536), config::Resume::kFixed)
  kernels::AmaxChoice amax_choice = DelayedScaling{}.choice;
  ESM_FIELD(amax_choice,
            "Which amax decides on a scale: the greatest of those remembered, or the last. Only for fp8_delayed.",
            config::Resume::kWarn)
  int64_t margin = DelayedScaling{}.margin;
  ESM_FIELD(margin,
            "Octaves left free above the amax that decides, for tensors that grow from step to step; each costs one of "
            "the smallest. Only for fp8_delayed.",
            config::between(0, 10), config::Resume::kWarn)
  int64_t first_layers_bf16 = 0;
  ESM_FIELD(first_layers_bf16, "So many first layers stay in BF16. Does nothing with precision: fp32 or bf16.",
            config::at_least(0), config::Resume::kWarn)
  int64_t last_layers_bf16 = 0;
  ESM_FIELD(last_layers_bf16, "So many last layers stay in BF16. Does nothing with precision: fp32 or bf16.",
            config::at_least(0), config::Resume::kWarn)
  int64_t statistics_every_steps = 100;
  ESM_FIELD(statistics_every_steps,
            "Steps between two looks at what quantizing loses; 0: none. Does nothing where no layer is quantized.",
            config::at_least(0), config::Resume::kFree)
  std::optional<double> grad_norm_low;
  ESM_FIELD(grad_norm_low, "Warn when the gradient norm (before clipping) is below this; in any precision.",
            config::at_least(0), config::Resume::kFree)
  std::optional<double> grad_norm_high;
  ESM_FIELD(grad_norm_high, "Warn when the gradient norm (before clipping) is above this; in any precision.",
            config::positive(), config::Resume::kFree)

  DelayedScaling delayed_scaling() const {
    return {.history_steps = history_steps, .choice = amax_choice, .margin = static_cast<int>(margin)};
  }
  void cross_check(config::Problems& problems) const {
    if (grad_norm_low.has_value() && grad_norm_high.has_value() && *grad_norm_low >= *grad_norm_high)
      problems.add("grad_norm_low", "{} is not below grad_norm_high = {}", *grad_norm_low, *grad_norm_high);
  }
};

}  // namespace esm::precision
