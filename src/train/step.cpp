#include "train/step.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "train/fp8_watch.h"
#include "train/schedule.h"

namespace esm::train {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& x) { return {static_cast<std::byte*>(x.data_ptr()), x.nbytes()}; }

void reduce(dist::Comm& comm, models::Model& model, StepOutcome& known) {
  if (comm.size() == 1) return;
  std::array<int64_t, 2> counts{known.tokens, known.padded_tokens};
  dist::all_reduce_values(comm, std::span<int64_t>(counts), dist::ReduceOp::kSum);
  known.tokens = counts[0];
  known.padded_tokens = counts[1];
  comm.all_reduce(bytes_of(model.loss_sums()), DType::kF64, dist::ReduceOp::kSum);
  if (ops::Scales* scales = model.scales(); scales != nullptr)
    comm.all_reduce(bytes_of(scales->pending()), DType::kI32, dist::ReduceOp::kMax);  // by the bits: NaN stays
  for (nn::UnitStorage* unit : model.units())
    comm.all_reduce(bytes_of(unit->flat(nn::Role::kGrad)), DType::kF32, dist::ReduceOp::kSum);
}

}  // namespace

double StepOutcome::loss() const {
  return sums.n_scored > 0 ? sums.loss_sum / static_cast<double>(sums.n_scored)
                           : std::numeric_limits<double>::quiet_NaN();
}

void StepQueue::push(const StepOutcome& known) {
  download_.push(optimizer_.numbers());
  known_.push_back(known);
}

StepOutcome StepQueue::pop() {
  kernels::UpdateNumbers numbers;
  std::memcpy(&numbers, download_.pop(), sizeof numbers);
  StepOutcome outcome = known_.front();
  known_.pop_front();
  const kernels::ClipResult& clip = numbers.clip;
  outcome.sums = {.loss_sum = clip.losses.loss,
                  .n_scored = static_cast<int64_t>(clip.losses.scored),
                  .n_correct = static_cast<int64_t>(clip.losses.correct)};
  outcome.grad_norm = clip.grad_norm;
  outcome.updates = numbers.adamw.updates;
  outcome.skipped = clip.skip != 0;
  if (outcome.skipped && outcome.sums.n_scored > 0) {
    outcome.nonfinite = optimizer_.parameter_at(numbers.first_nonfinite);
    if (outcome.nonfinite.empty()) outcome.nonfinite = "loss";
  }
  return outcome;
}

void train_step(const StepParts& parts, int64_t step) {
  const TrainSection& config = parts.config.train;
  StepOutcome known{.step = step + 1};
  known.lr = parts.config.optimizer.lr * schedule_factor(parts.config.schedule, step, config.max_steps);

  parts.model.begin_step();
  if (parts.watch != nullptr) parts.watch->begin_step(step + 1);
  data::Batch batch;
  for (int64_t i = 0; i < config.micro_batches; ++i) {
    parts.next_batch(batch);
    parts.model.accumulate(batch);
    known.tokens += batch.real_tokens;
    known.padded_tokens += batch.budget();
  }
  reduce(parts.comm, parts.model, known);
  if (parts.watch != nullptr) parts.watch->queue();
  parts.model.end_step();
  parts.optimizer.update(parts.model.loss_sums(), known.lr, config.clip_norm);
  parts.queue.push(known);
  if (parts.watch != nullptr) parts.watch->finish();
}

}  // namespace esm::train
