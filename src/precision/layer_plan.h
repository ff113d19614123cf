// Which encoder layer works in which recipe: `precision`, `layer_precision` and the first and last layers of `fp8`.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "precision/recipe.h"

namespace esm::precision {

/// The recipe of each encoder layer.
struct PrecisionPlan {
  std::vector<Precision> layers;
  bool operator==(const PrecisionPlan&) const = default;

  /// Whether any layer is quantized; whether any has delayed scaling, hence a history.
  bool quantized() const;
  bool delayed() const;
};

/// A rule that these settings break: the key, and what is wrong and what to write instead.
struct PlanProblem {
  std::string key, what;
};

/// All that is wrong. layer_precision: layers by name of a recipe, counted from 1: "1-4, 7"; the other layers have
/// `whole`. first_bf16 and last_bf16 layers are BF16 where `whole` is quantized; a layer that is named may say so too,
/// but nothing else. FP32 goes with no other recipe. layers = 0: the model is not known yet.
std::vector<PlanProblem> plan_problems(Precision whole, const std::map<std::string, std::string>& layer_precision,
                                       int64_t first_bf16, int64_t last_bf16, int64_t layers);

/// ConfigError with plan_problems(), a line each.
PrecisionPlan make_precision_plan(Precision whole, const std::map<std::string, std::string>& layer_precision,
                                  int64_t first_bf16, int64_t last_bf16, int64_t layers);

/// "1-4, 7" of {1, 2, 3, 4, 7}, in ascending order.
std::string layer_ranges(const std::vector<int64_t>& layers);

}  // namespace esm::precision
