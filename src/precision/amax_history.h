// Delayed scaling on the host: from the amax of past steps to the scales of the next. Pure arithmetic on plain tables
// (kernels/fp8_scale.h), which a kernel fills and reads in the same layout.
//
// A step's amax is a maximum over all its micro-batches, and only closing the step makes one entry of it. So work that
// is done again within the step (recompute) gives what is in the maximum already and cannot enter a history twice; a
// step that is closed twice is an error.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "kernels/fp8_scale.h"

namespace esm::precision {

/// Whether a tensor must be measured before it is quantized: in the first step, and as long as no amax was finite.
inline bool needs_measuring(const kernels::AmaxTables& tables, int64_t tensor) { return tables.scale[tensor] == 0.0f; }

/// pending[tensor] = max(pending[tensor], amax) in the order of the bits: NaN stays.
void record_amax(const kernels::AmaxTables& tables, int64_t tensor, float amax);

/// Scale of a tensor that needs_measuring(), from its own amax; for this step only, the history begins with its close.
float measured_scale(const kernels::DelayedRule& rule, float amax);

/// Ends step number `step` (from 0; InternalError unless it is the next one): an entry and a scale for each tensor by
/// its rule, pending = 0. rules: one a tensor. Ranks must have agreed on `pending` before: a maximum of int32 bits.
void close_step(const kernels::AmaxTables& tables, std::span<const kernels::DelayedRule> rules, int64_t step);

/// A tensor with amax values that were not finite.
struct NonfiniteAmax {
  std::string name;
  int64_t count;  // since `before`
};
/// Tensors whose count has grown since `before` was copied (empty: from zeros). names: one a tensor.
std::vector<NonfiniteAmax> new_nonfinite(std::span<const int32_t> before, std::span<const int32_t> now,
                                         std::span<const std::string> names);
/// One line for the log: "amax not finite, last finite scale kept: layers.3.fc1.x (2), layers.4.qkv.dy (1)"; at most
/// eight names, then how many more. Empty when there are none.
std::string text(std::span<const NonfiniteAmax> tensors);

}  // namespace esm::precision
