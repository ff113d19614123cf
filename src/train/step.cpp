#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "train/schedule.h"

namespace esm::train {
namespace {

void reduce_sums(dist::Comm& comm, StepOutcome& outcome) {
  comm.all_reduce(std::as_writable_bytes(std::span(&outcome.sums.loss_sum, 1)), DType::kF64, dist::ReduceOp::kSum);
  std::array<int64_t, 4> counts{outcome.sums.n_scored, outcome.sums.n_correct, outcome.tokens, outcome.padded_tokens};
  dist::all_reduce_values(comm, std::span<int64_t>(counts), dist::ReduceOp::kSum);
  outcome.sums.n_scored = counts[0];
  outcome.sums.n_correct = counts[1];
  outcome.tokens = counts[2];
  outcome.padded_tokens = counts[3];
}

void reduce_gradients(dist::Comm& comm, models::Model& model) {
  if (comm.size() == 1) return;
  for (nn::UnitStorage* unit : model.units()) {
    const at::Tensor& grad = unit->flat(nn::Role::kGrad);
    comm.all_reduce({static_cast<std::byte*>(grad.data_ptr()), grad.nbytes()}, DType::kF32, dist::ReduceOp::kSum);
  }
}

}  // namespace

double StepOutcome::loss() const {
  return sums.n_scored > 0 ? sums.loss_sum / static_cast<double>(sums.n_scored)
                           : std::numeric_limits<double>::quiet_NaN();
}

StepOutcome train_step(const StepParts& parts, int64_t step) {
  const TrainSection& config = parts.config.train;
  StepOutcome outcome;
  outcome.lr = parts.config.optimizer.lr * schedule_factor(parts.config.schedule, step, config.max_steps);

  parts.model.zero_grad();
  data::Batch batch;
  for (int64_t i = 0; i < config.micro_batches; ++i) {
    parts.next_batch(batch);
    parts.model.accumulate(batch);
    outcome.tokens += batch.real_tokens;
    outcome.padded_tokens += batch.budget();
  }
  outcome.sums = parts.model.take_sums();
  reduce_sums(parts.comm, outcome);
  if (outcome.sums.n_scored == 0) {
    outcome.skipped = true;
    return outcome;
  }
  reduce_gradients(parts.comm, parts.model);

  // The gradients are of the summed loss: one factor makes them means and clips them.
  const double per_token = 1.0 / static_cast<double>(outcome.sums.n_scored);
  outcome.grad_norm = std::sqrt(parts.optimizer.grad_sum_of_squares()) * per_token;
  if (!std::isfinite(outcome.loss()) || !std::isfinite(outcome.grad_norm)) {
    const std::string name = parts.optimizer.nonfinite_parameter();
    outcome.nonfinite = name.empty() ? "loss" : name;
    outcome.skipped = true;
    return outcome;
  }
  const double clip = config.clip_norm > 0 ? std::min(1.0, config.clip_norm / (outcome.grad_norm + 1e-6)) : 1.0;
  parts.optimizer.update(outcome.lr, per_token * clip);
  return outcome;
}

}  // namespace esm::train
