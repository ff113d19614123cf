#include "train/bench_step.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "device/cuda_queue.h"
#include "device/memory.h"
#include "dist/comm.h"
#include "train/flops.h"
#include "train/host_meter.h"
#include "train/memory_report.h"
#include "train/optimizer.h"
#include "train/setup.h"
#include "train/step.h"

namespace esm::train {
namespace {

constexpr uint64_t kSeed = 1;

/// Wall and processor time of steps that end one after the other.
class StepTimes {
 public:
  explicit StepTimes(int64_t warmup_steps) : warmup_steps_(warmup_steps) {}

  /// A step has ended; the next one begins.
  void end_step(int64_t real_tokens, int64_t padded_tokens) {
    const auto now = std::chrono::steady_clock::now();
    const double processor = processor_ms();
    if (done_++ >= warmup_steps_) {
      times_.push_back(std::chrono::duration<double, std::milli>(now - start_).count());
      processor_ms_ += processor - processor_start_;
      least_processor_ms_ = std::min(least_processor_ms_, processor - processor_start_);
      real_ += real_tokens;
      padded_ += padded_tokens;
    }
    start_ = now;
    processor_start_ = processor;
  }
  int64_t done() const { return done_; }

  BenchSpeed result() const {
    std::vector<double> times = times_;
    std::sort(times.begin(), times.end());
    const auto steps = std::ssize(times);
    return {.median_ms = times[times.size() / 2],
            .fastest_ms = times.front(),
            .slowest_ms = times.back(),
            .processor_ms = processor_ms_ / static_cast<double>(steps),
            .least_processor_ms = least_processor_ms_,
            .real_tokens = real_ / steps,
            .padded_tokens = padded_ / steps};
  }

 private:
  int64_t warmup_steps_;
  int64_t done_ = 0;
  std::vector<double> times_;
  double processor_ms_ = 0, least_processor_ms_ = std::numeric_limits<double>::infinity();
  int64_t real_ = 0, padded_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double processor_start_ = esm::train::processor_ms();
};

Context open_bench_device(RunConfig& config, const BenchStepOptions& options) {
  config.train.threads = effective_threads(config.train.threads);
  Context context = open_device(config, options.kernel_cache);
  if (!context.on_cuda()) context.host_clock = std::make_shared<device::HostClock>();
  return context;
}

/// Mean time of a step by kind of operation, over kClockedSteps further steps.
template <class Step>
void clock_phases(const Context& context, const Step& step, BenchSpeed& speed) {
  constexpr int kClockedSteps = 3;
  if (context.on_cuda())
    context.cuda->clock = std::make_unique<device::PhaseClock>();
  else
    context.host_clock->on = true;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kClockedSteps; ++i) step();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
  speed.clocked_ms = context.on_cuda() ? speed.median_ms : wall.count() / kClockedSteps;
  speed.phases = context.on_cuda() ? context.cuda->clock->read() : context.host_clock->read();
  if (context.on_cuda()) context.cuda->clock.reset();
  for (device::PhaseTime& phase : speed.phases) {
    phase.milliseconds /= kClockedSteps;
    phase.count /= kClockedSteps;
  }
}

/// What is known only once all steps are over; peak memory before the products that are measured last.
void complete(BenchSpeed& speed, const Context& context, const BenchBatches& batches) {
  speed.effective_seqlen = batches.effective_seqlen();
  if (context.on_cuda()) return;
  speed.peak_bytes = peak_resident_bytes();
  speed.product_gflops = measure_product_gflops(context);
}

BenchStepResult measure(RunConfig config, const BenchStepOptions& options) {
  const Context context = open_bench_device(config, options);
  const KernelChoice kernels = choose_kernels(context, config, options.kernel_cache, {});
  const auto model = build_model(context, config, kernels, /*training=*/true, {});
  model->init_parameters(kSeed);
  Optimizer optimizer(context, model->units(), config.optimizer, {.seed = kSeed, .graphs = config.cuda_graph});
  StepQueue queue(context, optimizer);
  const auto comm = dist::make_single_comm();
  BenchBatches batches(config, options.batches);
  const StepParts parts{*model, [&](data::Batch& batch) { batches.next(batch); }, optimizer, queue, *comm, config};

  BenchStepResult result;
  result.products = precision::describe_plan(model->products());
  result.deterministic = config.deterministic || !context.on_cuda();
  result.attention = kernels.attention.has_value() ? ops::attention_kind_name(*kernels.attention) : "cpu";
  synchronize(context);
  const int64_t steps = options.warmup_steps + options.steps;
  const int64_t ahead = context.on_cuda() ? 1 : 0;  // as the trainer
  StepTimes times(options.warmup_steps);
  const auto finish_oldest = [&] {
    const StepOutcome outcome = queue.pop();
    if (times.done() == 0) result.first_loss = outcome.loss();
    result.last_loss = outcome.loss();
    times.end_step(outcome.tokens, outcome.padded_tokens);
  };
  for (int64_t step = 0; step < steps; ++step) {
    train_step(parts, step);
    while (queue.pending() > (step + 1 < steps ? ahead : 0)) finish_oldest();
  }
  result.speed = times.result();
  int64_t step = steps;
  const auto one_more = [&] {
    train_step(parts, step++);
    queue.pop();
  };
  clock_phases(context, one_more, result.speed);
  complete(result.speed, context, batches);
  result.speed.flops_per_token = flops_per_token(config.model, result.speed.effective_seqlen);
  if (context.on_cuda()) {
    const device::MemoryInfo memory = device::device_memory();
    result.device_bytes = memory.total_bytes - memory.free_bytes;
    result.predicted_bytes = plan_memory(config, present_place(config)).step_bytes;
  }
  return result;
}

BenchSpeed measure_forward(RunConfig config, const BenchStepOptions& options) {
  BenchBatches batches(config, options.batches);
  const Context context = open_bench_device(config, options);
  const KernelChoice kernels = choose_kernels(context, config, options.kernel_cache, {});
  const auto model = build_model(context, config, kernels, /*training=*/false, {});
  model->init_parameters(kSeed);
  data::Batch batch;
  const auto forward = [&] {
    batches.next(batch);
    const models::Outputs outputs = model->forward(batch, {.embeddings = true});
    synchronize(context);
  };
  StepTimes times(options.warmup_steps);
  for (int64_t step = 0; step < options.warmup_steps + options.steps; ++step) {
    forward();
    times.end_step(batch.real_tokens, batch.budget());
  }
  BenchSpeed speed = times.result();
  clock_phases(context, forward, speed);
  complete(speed, context, batches);
  speed.flops_per_token = embedding_flops_per_token(config.model, speed.effective_seqlen);
  return speed;
}

}  // namespace

BenchStepResult bench_step(const RunConfig& config, const BenchStepOptions& options) {
  return with_memory_report({.config = config}, [&] { return measure(config, options); });
}

BenchSpeed bench_forward(const RunConfig& config, const BenchStepOptions& options) {
  return with_memory_report({.config = config, .use = Use::kEvaluation},
                            [&] { return measure_forward(config, options); });
}

}  // namespace esm::train
