#include "train/bench_step.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "data/vocabulary.h"
#include "device/cuda_queue.h"
#include "device/memory.h"
#include "dist/comm.h"
#include "ops/attention_choice.h"
#include "train/flops.h"
#include "train/memory_report.h"
#include "train/optimizer.h"
#include "train/setup.h"
#include "train/step.h"

namespace esm::train {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int kBatches = 4;  // different ones, in turn

std::vector<int64_t> lengths_of(const RunConfig& config, const BenchStepOptions& options, uint64_t seed) {
  const int64_t tokens = config.data.tokens_per_batch;
  if (options.seqlen == 0) return ops::protein_lengths(tokens, config.data.max_tokens, seed);
  if (options.seqlen < 3 || options.seqlen > config.data.max_tokens)
    fail<ConfigError>("--seqlen {}: a length from 3 to data.max_tokens ({}) is wanted", options.seqlen,
                      config.data.max_tokens);
  return std::vector<int64_t>(static_cast<size_t>(tokens / options.seqlen), options.seqlen);
}

/// Random residues, masked as data.masking says.
data::Batch synthetic_batch(const RunConfig& config, const BenchStepOptions& options, uint64_t seed) {
  const int64_t tokens = config.data.tokens_per_batch;
  const data::MaskingConfig& masking = config.data.masking;
  data::Batch batch;
  batch.tokens.assign(static_cast<size_t>(tokens), data::kPadToken);
  batch.cu_seqlens.push_back(0);
  const auto close = [&](int64_t end, bool dummy) {
    batch.max_seqlen = std::max(batch.max_seqlen, narrow<int32_t>(end - batch.cu_seqlens.back()));
    batch.cu_seqlens.push_back(narrow<int32_t>(end));
    batch.is_dummy.push_back(dummy ? 1 : 0);
  };
  for (const int64_t length : lengths_of(config, options, seed)) {
    const int64_t first = batch.cu_seqlens.back(), last = first + length - 1;
    for (int64_t t = first; t <= last; ++t) {
      const PhiloxResult words = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(t), 78);
      uint8_t& token = batch.tokens[static_cast<size_t>(t)];
      token = t == first  ? data::kClsToken
              : t == last ? data::kEosToken
                          : static_cast<uint8_t>(data::kFirstAminoAcid + uniform_below(words.v[0], 20));
      if (t == first || t == last || static_cast<double>(uniform01(words.v[1])) >= masking.rate) continue;
      batch.scored_rows.push_back(narrow<int32_t>(t));
      batch.targets.push_back(token);
      const double what = static_cast<double>(uniform01(words.v[2]));
      if (what < masking.mask_share)
        token = data::kMaskToken;
      else if (what < masking.mask_share + masking.random_share)
        token = static_cast<uint8_t>(data::kFirstAminoAcid + uniform_below(words.v[3], 20));
    }
    close(first + length, false);
    batch.segments.push_back({.n_tokens = narrow<int32_t>(length)});
    batch.real_tokens += length;
  }
  while (batch.cu_seqlens.back() < tokens)
    close(std::min<int64_t>(tokens, batch.cu_seqlens.back() + config.data.max_tokens), true);
  return batch;
}

double effective_seqlen(const std::vector<data::Batch>& batches) {
  double squares = 0, sum = 0;
  for (const data::Batch& batch : batches)
    for (const data::Segment& segment : batch.segments) {
      squares += static_cast<double>(segment.n_tokens) * static_cast<double>(segment.n_tokens);
      sum += static_cast<double>(segment.n_tokens);
    }
  return squares / sum;
}

/// Mean device time of a step by kind of operation, over kClockedSteps further steps.
std::vector<device::PhaseTime> clock_phases(const Context& context, const StepParts& parts, int64_t step) {
  constexpr int64_t kClockedSteps = 3;
  context.cuda->clock = std::make_unique<device::PhaseClock>();
  for (int64_t i = 0; i < kClockedSteps; ++i) {
    train_step(parts, step + i);
    parts.queue.pop();
  }
  std::vector<device::PhaseTime> phases = context.cuda->clock->read();
  context.cuda->clock.reset();
  for (device::PhaseTime& phase : phases) {
    phase.milliseconds /= kClockedSteps;
    phase.count /= kClockedSteps;
  }
  return phases;
}

BenchStepResult measure(const RunConfig& given, const BenchStepOptions& options) {
  RunConfig config = given;
  config.train.threads = effective_threads(config.train.threads);
  const Context context = open_device(config, options.kernel_cache);
  const KernelChoice kernels = choose_kernels(context, config, options.kernel_cache, {});
  const auto model = build_model(context, config, kernels, /*training=*/true, {});
  model->init_parameters(kSeed);
  Optimizer optimizer(context, model->units(), config.optimizer, {.seed = kSeed, .graphs = config.cuda_graph});
  StepQueue queue(context, optimizer);
  const auto comm = dist::make_single_comm();
  std::vector<data::Batch> batches;
  for (uint64_t i = 0; i < kBatches; ++i) batches.push_back(synthetic_batch(config, options, kSeed + i));
  size_t next = 0;
  const StepParts parts{
      *model, [&](data::Batch& batch) { batch = batches[next++ % kBatches]; }, optimizer, queue, *comm, config};

  BenchStepResult result;
  result.products = precision::describe_plan(model->products());
  result.deterministic = config.deterministic || !context.on_cuda();
  result.attention = kernels.attention.has_value() ? ops::attention_kind_name(*kernels.attention) : "cpu";
  std::vector<double> times;
  synchronize(context);
  auto start = std::chrono::steady_clock::now();
  const int64_t steps = options.warmup_steps + options.steps;
  const int64_t ahead = context.on_cuda() ? 1 : 0;  // as the trainer
  int64_t done = 0;
  const auto finish_oldest = [&] {
    const StepOutcome outcome = queue.pop();
    const auto now = std::chrono::steady_clock::now();
    if (done == 0) result.first_loss = outcome.loss();
    result.last_loss = outcome.loss();
    result.real_tokens = outcome.tokens;
    result.padded_tokens = outcome.padded_tokens;
    if (done >= options.warmup_steps) times.push_back(std::chrono::duration<double, std::milli>(now - start).count());
    start = now;
    ++done;
  };
  for (int64_t step = 0; step < steps; ++step) {
    train_step(parts, step);
    while (queue.pending() > (step + 1 < steps ? ahead : 0)) finish_oldest();
  }
  std::sort(times.begin(), times.end());
  result.median_ms = times[times.size() / 2];
  result.fastest_ms = times.front();
  result.slowest_ms = times.back();
  result.effective_seqlen = effective_seqlen(batches);
  result.flops_per_token = flops_per_token(config.model, result.effective_seqlen);
  if (context.on_cuda()) {
    result.phases = clock_phases(context, parts, steps);
    const device::MemoryInfo memory = device::device_memory();
    result.device_bytes = memory.total_bytes - memory.free_bytes;
    result.predicted_bytes = plan_memory(config, present_place(config)).step_bytes;
  }
  return result;
}

}  // namespace

BenchStepResult bench_step(const RunConfig& config, const BenchStepOptions& options) {
  return with_memory_report({.config = config}, [&] { return measure(config, options); });
}

}  // namespace esm::train
