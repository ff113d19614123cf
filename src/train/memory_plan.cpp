#include "train/memory_plan.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/narrow.h"
#include "device/properties.h"
#include "device/versions.h"
#include "ops/attention_memory.h"
#include "train/checkpointing.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace esm::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

/// What cudaMemGetInfo counts beyond all we allocate: CUDA context, kernels of our own, of LibTorch, cuBLASLt and
/// cuDNN. From `bench step` of seven configurations (8M to 3B) on an H200, CUDA 13.0, driver 580: 630 to 670 MiB.
constexpr int64_t kContextBytes = 650 * kMiB;

/// Segments from which LibTorch's allocator cuts blocks below 10 MiB, on the average half used: one of 20 MiB and some
/// of 2 MiB.
constexpr int64_t kOpenSegmentBytes = 22 * kMiB;

/// Of the memory that a plan may fill: the rest is for what drifts with versions of libraries and drivers.
constexpr double kUsableShare = 0.98;

constexpr int64_t kTokenStep = 128;

int64_t gib(double value) { return static_cast<int64_t>(value * 1024) * kMiB; }

int64_t host_memory() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE));
}

/// What choose_kernels() would decide, for build_model() on a sketch.
KernelChoice likely_kernels(const RunConfig& config, const PlanPlace& place) {
  if (!place.cuda) return {};
  const bool fp32 = config.precision == precision::Precision::kFp32;
  KernelChoice choice;
  choice.attention =
      settle_attention(
          {.configured = config.attention,
           .deterministic = config.deterministic,
           .target = {.head_dim = config.model.head_dim(), .capability = place.compute_capability, .fp32 = fp32}})
          .kind;
  if (choice.attention.has_value()) return choice;
  const ops::AttentionSizes sizes{
      .tokens = config.data.tokens_per_batch, .heads = config.model.heads, .head_dim = config.model.head_dim()};
  choice.attention = ops::likely_attention(sizes, fp32 ? at::kFloat : at::kBFloat16, place.compute_capability);
  return choice;
}

/// Operands of the largest product, which stand beside everything else while its kernels are timed
/// (device/gemm_tune_cuda.cpp), and the buffer that flushes the cache.
int64_t gemm_timing_bytes(const RunConfig& config) {
  constexpr int64_t kFlushBytes = 120 * kMiB;  // twice the cache of an H200
  const int64_t element = config.precision == precision::Precision::kFp32 ? 4 : 2;
  const int64_t d = config.model.hidden, f = config.model.ffn_size(), tokens = config.data.tokens_per_batch;
  const int64_t rows = std::max(f + 2 * d, 4 * d);  // second product of the feed-forward with its residual; q, k, v
  return element * tokens * rows + 4 * d * f + kFlushBytes;
}

/// What is in use on a CUDA device beside tensors; `parts` are those.
void add_device_parts(const RunConfig& config, std::vector<ops::MemoryPart>& parts) {
  int64_t rounding = kOpenSegmentBytes;
  for (const ops::MemoryPart& part : parts) rounding += part.rounding_bytes;
  const auto add = [&](const char* name, int64_t bytes) {
    parts.emplace_back();
    parts.back().name = name;
    parts.back().bytes = bytes;
  };
  add("allocator: rounding, open segments", rounding);
  add("GEMM workspace", gemm_workspace_bytes(config));
  add("CUDA context and libraries", kContextBytes);
}

/// `optimizer`: whether there is one.
MemoryPlan plan_of(const RunConfig& given, const PlanPlace& place, Use use, bool optimizer) {
  const Context context{.device = place.cuda ? DeviceKind::kCuda : DeviceKind::kCpu,
                        .compute_capability = place.cuda ? place.compute_capability : 0,
                        .threads = narrow<int>(place.threads),
                        .sketch = true};
  // Rotary frequencies of a file: their number is all that matters here.
  const std::vector<float> inv_freq(static_cast<size_t>(given.model.head_dim() / 2), 1.0f);
  const auto model = build_model(context, given, likely_kernels(given, place), use == Use::kTraining, inv_freq);
  if (optimizer) Optimizer(context, model->units(), given.optimizer);

  MemoryPlan plan{.parts = memory_parts(*model), .parameters = model->parameter_count()};
  if (optimizer) plan.checkpoint_bytes = checkpoint_bytes(*model);
  if (place.cuda) add_device_parts(given, plan.parts);
  for (const ops::MemoryPart& part : plan.parts) plan.step_bytes += part.bytes;
  // Attention has been timed by then, with less than a model takes.
  if (place.cuda) plan.start_bytes = plan.step_bytes + (given.deterministic ? 0 : gemm_timing_bytes(given));
  return plan;
}

/// Largest number of kTokenStep tokens, at least `least`, with peak() <= usable; 0: none. peak() grows, almost
/// linearly, so that interpolation finds it in a few calls.
template <class Peak>
int64_t most_steps(int64_t least, double usable, const Peak& peak) {
  int64_t good = least, bad = kMostTokens / kTokenStep;
  double good_peak = peak(good), bad_peak = peak(bad);
  if (good_peak > usable) return 0;
  if (bad_peak <= usable) return bad;
  for (int i = 0; bad - good > 1; ++i) {
    const double share = i < 8 ? (usable - good_peak) / (bad_peak - good_peak) : 0.5;
    const int64_t middle =
        std::clamp(good + static_cast<int64_t>(share * static_cast<double>(bad - good)), good + 1, bad - 1);
    const double middle_peak = peak(middle);
    (middle_peak <= usable ? good : bad) = middle;
    (middle_peak <= usable ? good_peak : bad_peak) = middle_peak;
  }
  return good;
}

}  // namespace

std::span<const PlanPlace> usual_cards() {
  // What cudaMemGetInfo says in all; 141 GB measured (H200), the others as published logs have it.
  static const std::array cards{
      PlanPlace{.name = "A100 40 GB", .memory_bytes = gib(39.4), .compute_capability = 80},
      PlanPlace{.name = "H100 80 GB", .memory_bytes = gib(79.1), .compute_capability = 90},
      PlanPlace{.name = "H200 141 GB", .memory_bytes = gib(139.8), .compute_capability = 90},
      PlanPlace{.name = "B200 192 GB", .memory_bytes = gib(178.3), .compute_capability = 100},
  };
  return cards;
}

PlanPlace present_place(const RunConfig& config) {
  if (config.device == DeviceChoice::kCpu || device::cuda_device_count() == 0)
    return {.name = "CPU",
            .memory_bytes = host_memory(),
            .cuda = false,
            .threads = effective_threads(config.train.threads)};
  const device::Properties found = device::properties(0);
  return {.name = found.name, .memory_bytes = found.memory_bytes, .compute_capability = found.compute_capability};
}

PlanPlace planned_place(const RunConfig& config) {
  if (config.device != DeviceChoice::kCpu && device::cuda_device_count() == 0) return usual_cards()[2];
  return present_place(config);
}

std::vector<ops::MemoryPart> memory_parts(models::Model& model) {
  std::vector<ops::MemoryPart> parts;
  for (const nn::UnitStorage* unit : model.units())
    unit->for_each_buffer([&](std::string_view name, const at::Tensor& buffer) {
      const std::string title = fmt::format("parameters: {}", name);
      const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.name == title; });
      (found != parts.end() ? *found : parts.emplace_back(ops::MemoryPart{.name = title})).add(buffer);
    });
  for (ops::MemoryPart& part : model.memory()) parts.push_back(std::move(part));
  return parts;
}

MemoryPlan plan_memory(const RunConfig& config, const PlanPlace& place, Use use) {
  return plan_of(config, place, use, use == Use::kTraining);
}

Fits what_fits(const RunConfig& given, const PlanPlace& place, Use use) {
  RunConfig config = given;
  const auto plan = [&](int64_t steps, bool optimizer) {
    config.data.tokens_per_batch = steps * kTokenStep;
    return plan_of(config, place, use, optimizer);
  };
  const int64_t least = (given.data.max_tokens + kTokenStep - 1) / kTokenStep;
  // The same for any number of tokens, and the slow part of a plan.
  const int64_t optimizer_bytes =
      use == Use::kTraining ? plan(least, true).step_bytes - plan(least, false).step_bytes : 0;
  const auto peak = [&](int64_t steps) {
    return static_cast<double>(plan(steps, false).peak_bytes() + optimizer_bytes);
  };
  Fits fits{};
  for (size_t i = 0; i < fits.size(); ++i) {
    config.train.recompute = static_cast<nn::Recompute>(i);
    if (config.train.recompute != given.train.recompute) config.train.recompute_layers = 0;
    fits[i] = kTokenStep * most_steps(least, kUsableShare * static_cast<double>(place.memory_bytes), peak);
  }
  return fits;
}

}  // namespace esm::train
