// Scales of all tensors of a model that are scaled as a whole: amax histories of delayed scaling, and scales of the
// moment. State of plain tensors of fixed shapes, where the model works; rules: kernels/fp8_scale.h.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm_operand.h"

namespace esm::ops {

/// Scales that are delayed come from earlier steps, but in the first step (and whenever there is no history yet) from
/// the tensors themselves, as those of the moment always do. Evaluation leaves histories alone.
class Scales {
 public:
  Scales(const Context& context, int64_t history_steps);

  /// Declares a tensor, before allocate(); its index.
  int64_t add(std::string name, const kernels::DelayedRule& rule, precision::Timing timing);
  void allocate();

  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  enum class Pass { kTraining, kEvaluation };
  /// Queues what has to happen before the micro-batches of a step.
  void begin_step();
  /// Queues what has to happen before a micro-batch; at() then goes by `pass`.
  void begin_micro_batch(Pass pass);
  /// Queues the end of a micro-batch of training: its amax values enter pending().
  void end_micro_batch();
  /// Queues the end of a step: its amax values enter the histories, which give the next scales.
  void close_step();
  /// Whether delayed scales are measured for want of a history: other work, so a key of recorded work.
  bool measuring() const { return closed_steps_ == 0; }

  TensorScale at(int64_t index) const;

  /// [size()] int32, where the model works: amax values that were not finite, so far.
  const at::Tensor& nonfinite() const { return nonfinite_; }
  /// [size()] FP32: amax of the micro-batches of the step that have ended. Ranks must agree on it (a maximum of the
  /// bits) before close_step().
  const at::Tensor& pending() const { return pending_; }
  const at::Tensor& scale() const { return scale_; }

  /// What a checkpoint holds: name and tensor, shapes fixed by the model and the length of the histories.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  /// After the tensors of state() have been written to.
  void state_restored();

  MemoryPart memory() const;

 private:
  kernels::AmaxTables tables() const;

  Context context_;
  int64_t history_steps_;
  std::vector<std::string> names_;
  std::vector<kernels::DelayedRule> rules_;
  std::vector<bool> current_;
  at::Tensor history_, pending_, scale_, inverse_, nonfinite_, closed_;
  at::Tensor amax_;  // of the micro-batch; each has its own, so that scales of the moment are those of a tensor alone
  at::Tensor device_rules_, arrived_;
  int64_t closed_steps_ = 0;
  bool recording_ = true;
};

}  // namespace esm::ops
