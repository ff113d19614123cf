#include "train/kernel_choice.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "device/properties.h"
#include "device/versions.h"
#include "ops/attention_choice.h"
#include "ops/attention_choice_file.h"
#include "ops/version.h"

namespace esm::train {
namespace {

constexpr char kGemmFile[] = "gemm_plans.txt", kAttentionFile[] = "attention.txt";

std::optional<ops::AttentionKind> kind_of(AttentionChoice choice) {
  switch (choice) {
    case AttentionChoice::kAuto: return std::nullopt;
    case AttentionChoice::kFlash2: return ops::AttentionKind::kFlash2;
    case AttentionChoice::kCudnn: return ops::AttentionKind::kCudnn;
    case AttentionChoice::kSimple: return ops::AttentionKind::kSimple;
  }
  return std::nullopt;
}

/// `file` in the cache folder; "" when there is no such folder and none can be made.
std::string cache_file(const std::string& folder, const char* file) {
  if (folder.empty()) return "";
  try {
    make_folders(folder);
  } catch (const DataError& error) {
    log::warn("kernel choices are not kept for the next start: {}", error.what());
    return "";
  }
  return folder + "/" + file;
}

/// As a step of this run will see them, with proteins of usual lengths.
ops::AttentionSizes usual_sizes(const RunConfig& config) {
  const int64_t tokens = config.data.tokens_per_batch;
  const int64_t longest = config.data.max_tokens > 0 ? config.data.max_tokens : tokens;
  const auto sequences = static_cast<uint64_t>(ops::protein_lengths(tokens, longest, 0).size());
  return {.tokens = tokens,
          .heads = config.model.heads,
          .head_dim = config.model.head_dim(),
          .capacity = static_cast<int64_t>(std::bit_ceil(std::max<uint64_t>(sequences + 1, 16))),
          .max_seqlen = longest};
}

/// A file that cannot be read or written is done without.
template <class Body>
void with_cache(const std::string& path, const Body& body) {
  if (path.empty()) return;
  try {
    body();
  } catch (const DataError& error) {
    log::warn("attention choices are not kept: {}", error.what());
  }
}

ops::AttentionKind fastest_attention(const Context& context, const RunConfig& config, const device::Properties& device,
                                     const std::string& cache) {
  const ops::AttentionSizes sizes = usual_sizes(config);
  const at::ScalarType type = config.precision == precision::Precision::kFp32 ? at::kFloat : at::kBFloat16;
  const std::string key = ops::attention_choice_key(device.name, sizes), path = cache_file(cache, kAttentionFile);
  std::optional<ops::KeptAttention> kept;
  if (type == at::kBFloat16) with_cache(path, [&] { kept = ops::read_attention_choice(path, key); });
  const ops::AttentionTarget target{.head_dim = sizes.head_dim, .capability = device.compute_capability};
  if (kept.has_value() && attention_refusal(kept->kind, target).empty()) {
    log::info("attention: {} ({:.0f} us a layer when it was timed; {})", ops::attention_kind_name(kept->kind),
              kept->microseconds, path);
    return kept->kind;
  }
  const ops::AttentionChoice choice = ops::choose_attention(sizes, type, context.stream());
  log::info("{}", choice.text());
  for (const ops::AttentionTiming& timing : choice.timings)
    if (timing.kind == choice.kind && timing.refusal.empty())
      with_cache(path, [&] { ops::write_attention_choice(path, key, {choice.kind, timing.microseconds}); });
  return choice.kind;
}

}  // namespace

AttentionAnswer settle_attention(const AttentionQuestion& q) {
  const std::optional<ops::AttentionKind> configured = kind_of(q.configured);
  const std::optional<ops::AttentionKind> before = ops::find_attention_kind(q.recorded);
  if (configured.has_value()) {
    const std::string name(ops::attention_kind_name(*configured)), refusal = attention_refusal(*configured, q.target);
    if (!refusal.empty()) fail<DeviceError>("attention: {} {}; use attention: auto", name, refusal);
    if (q.deterministic && before.has_value() && *before != *configured)
      fail<ConfigError>(
          "attention: {} is asked for, the checkpoint was made with {}, and a deterministic run goes on with the same: "
          "leave the key attention out, or set deterministic: false",
          name, q.recorded);
    return {configured, "as configured"};
  }
  if (before.has_value()) {
    const std::string refusal = attention_refusal(*before, q.target);
    if (refusal.empty()) return {before, "as before the checkpoint"};
    if (q.deterministic)
      fail<DeviceError>(
          "the checkpoint was made with attention {}, which {}: on this device the run cannot go on bit for bit; set "
          "deterministic: false to go on within rounding",
          q.recorded, refusal);
    log::warn("the checkpoint was made with attention {}, which {}: another one is chosen", q.recorded, refusal);
  }
  if (q.deterministic) return {ops::deterministic_attention(q.target), "deterministic"};
  return {};
}

KernelChoice choose_kernels(const Context& context, const RunConfig& config, const std::string& cache,
                            const KernelRecord& recorded) {
  KernelChoice choice;
  choice.record["LibTorch"] = ops::libtorch_version();
  choice.record["device"] = "CPU";
  if (!context.on_cuda()) return choice;

  const device::Properties device = device::properties(context.device_index);
  choice.record["device"] = device.name;
  choice.record["cuDNN"] = ops::cudnn_version();
  for (const auto& [library, version] : device::library_versions())
    if (library == "cuBLASLt") choice.record[library] = version;
  const auto before = recorded.find("attention");
  const AttentionAnswer answer = settle_attention({.configured = config.attention,
                                                   .deterministic = config.deterministic,
                                                   .target = {.head_dim = config.model.head_dim(),
                                                              .capability = device.compute_capability,
                                                              .fp32 = config.precision == precision::Precision::kFp32},
                                                   .recorded = before == recorded.end() ? "" : before->second});
  choice.attention = answer.kind;
  if (answer.kind.has_value())
    log::info("attention: {} ({})", ops::attention_kind_name(*answer.kind), answer.reason);
  else
    choice.attention = fastest_attention(context, config, device, cache);
  choice.record["attention"] = ops::attention_kind_name(*choice.attention);
  return choice;
}

int64_t gemm_workspace_bytes(const RunConfig& config) {
  return device::gemm_workspace_for(config.model.hidden * config.model.ffn_size());
}

device::GemmOptions gemm_options(const RunConfig& config, const std::string& cache) {
  device::GemmOptions options{.workspace_bytes = gemm_workspace_bytes(config)};
  if (config.deterministic)
    options.tuning = device::GemmTuning::kFirstHeuristic;
  else
    options.plan_file = cache_file(cache, kGemmFile);
  return options;
}

std::vector<std::string> differences(const KernelRecord& of_checkpoint, const KernelRecord& now) {
  std::vector<std::string> lines;
  for (const auto& [what, value] : of_checkpoint) {
    const auto found = now.find(what);
    if (found != now.end() && found->second != value)
      lines.push_back(
          fmt::format("the checkpoint was made with {} {}, this run has {}: results agree within rounding only", what,
                      value, found->second));
  }
  return lines;
}

}  // namespace esm::train
