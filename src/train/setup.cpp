#include "train/setup.h"

#include <sched.h>

#include <chrono>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "device/properties.h"
#include "device/versions.h"

namespace esm::train {
namespace {

constexpr int kTriedCapability = 90;

data::DatasetOptions dataset_options(const RunConfig& config, const TrainOptions& options) {
  data::DatasetOptions out;
  out.cache_dir = config.data.cache_dir.empty() ? options.data_cache : config.data.cache_dir;
  out.verify = config.data.verify;
  out.table = {config.data.sequence_column, config.data.id_column, config.data.target_column, ""};
  out.should_stop = [stop = options.stop_signal] { return stop && stop() != 0; };
  out.progress = [last = std::chrono::steady_clock::time_point{}](const data::PrepareProgress& p) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::seconds(5)) return;
    last = now;
    log::info("preparing data: {}", data::progress_text(p));
  };
  return out;
}

void describe(const data::Dataset& dataset, const std::string& role) {
  log::info("{}: {} sequences, {} residues", role, with_thousands(dataset.size()), with_thousands(dataset.residues()));
  if (!dataset.report_text().empty()) log::info("{}", dataset.report_text());
}

}  // namespace

data::Dataset open_set(const RunConfig& config, const std::vector<std::string>& paths, const std::string& role,
                       const TrainOptions& options) {
  data::Dataset set = data::open_dataset(paths, dataset_options(config, options));
  describe(set, role);
  return set;
}

OpenedData open_data(const RunConfig& config, const TrainOptions& options) {
  OpenedData opened;
  opened.train = data::open_training_sets(config.data, dataset_options(config, options));
  for (const data::TrainingSet& set : opened.train) {
    const std::string role = opened.train.size() == 1 ? "training data" : fmt::format("training data '{}'", set.name);
    describe(set.data, role);
    if (set.clusters != nullptr) log::info("{}: {}", role, set.clusters->summary());
  }
  for (const auto& [name, paths] : config.data.valid)
    opened.valid[name] = open_set(config, paths, fmt::format("validation data '{}'", name), options);
  return opened;
}

void adopt_model_config(RunConfig& config, const ModelSource& source, const config::Origins& origins) {
  models::Esm2Config adopted = source.config();
  adopted.init_std = config.model.init_std;  // of no consequence for given weights
  const auto wanted = config::entries(config.model);
  const auto found = config::entries(adopted);
  std::string wrong;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto origin = origins.find("model." + wanted[i].key);
    if (origin == origins.end() || wanted[i].value == found[i].value) continue;
    if (wanted[i].key == "ffn" && config.model.ffn_size() == adopted.ffn_size()) continue;
    wrong += fmt::format("\n{}: model.{}: {} is asked for, {} has {}", origin->second, wanted[i].key, wanted[i].value,
                         source.path(), found[i].value);
  }
  if (!wrong.empty()) fail<ConfigError>("the model is not that of its weights; leave these keys out:{}", wrong);
  config.model = adopted;
}

void check_resumed_config(const checkpoint::OpenCheckpoint& checkpoint, const RunConfig& config) {
  std::string refused;
  std::set<std::string> defaults;
  for (const config::Entry& entry : config::entries(config))
    if (entry.is_default()) defaults.insert(entry.key);
  for (const config::Difference& d : config::diff(checkpoint.manifest().config_yaml, config)) {
    // Keys that the program did not have then.
    if (d.side == config::Difference::Side::kOnlyNew && defaults.contains(d.key)) continue;
    const std::string line =
        fmt::format("{}: {} in the checkpoint, {} now", d.key, d.old_value.empty() ? "absent" : d.old_value,
                    d.new_value.empty() ? "absent" : d.new_value);
    switch (d.resume) {
      case config::Resume::kFree: log::info("changed since the checkpoint: {}", line); break;
      case config::Resume::kWarn:
        log::warn("changed since the checkpoint, the run goes on with the new value: {}", line);
        break;
      case config::Resume::kFixed: refused += "\n" + line; break;
    }
  }
  if (!refused.empty())
    fail<ConfigError>(
        "cannot resume {}: these settings may not change within a run (use another run.dir, or init_from "
        "to start a new run from these weights):{}",
        checkpoint.path(), refused);
}

Context open_device(const RunConfig& config, const std::string& kernel_cache) {
  const int threads = static_cast<int>(effective_threads(config.train.threads));
  const int devices = device::cuda_device_count();
  if (config.device == DeviceChoice::kCuda && devices == 0)
    fail<DeviceError>(
        "device: cuda is asked for, but there is no CUDA device that this program can use (no GPU, no driver, or a "
        "build without CUDA: see esmtrain --version); use device: cpu or auto");
  if (config.device == DeviceChoice::kCpu || devices == 0) {
    log::info("device: CPU, {} threads", threads);
    return {.threads = threads};
  }
  const device::Properties found = device::properties(0);
  log::info("device: cuda:0, {} ({}, compute capability {}.{})", found.name, human_bytes(found.memory_bytes),
            found.compute_capability / 10, found.compute_capability % 10);
  if (found.compute_capability != kTriedCapability)
    log::warn(
        "this program was run on devices of compute capability {}.{} only so far; `esmtrain doctor` checks every "
        "kernel "
        "on this one",
        kTriedCapability / 10, kTriedCapability % 10);
  return make_cuda_context(0, threads, gemm_options(config, kernel_cache));
}

std::unique_ptr<models::Esm2> build_model(const Context& context, const RunConfig& config, const KernelChoice& kernels,
                                          bool training, const std::vector<float>& inv_freq) {
  models::ModelOptions options;
  options.precision = config.precision;
  options.layer_precision = config.precision_plan().layers;
  options.delay = config.fp8.delayed_scaling();
  options.tokens_per_batch = config.data.tokens_per_batch;
  options.max_tokens = config.data.max_tokens;
  options.attention = kernels.attention;
  options.deterministic = config.deterministic;
  options.graphs = config.cuda_graph;
  options.training = training;
  // Without training FP32 weights do: whatever the formats, they hold exactly what was trained.
  if (training) options.formats = {.master = config.optimizer.master, .moments = config.optimizer.moments};
  options.recompute = config.train.recompute;
  options.recompute_layers = std::min(config.train.recompute_layers, config.model.layers);
  options.label_smoothing = config.train.label_smoothing;
  if (config.model.inv_freq == models::InvFreq::kFile) {
    if (inv_freq.empty())
      fail<ConfigError>(
          "model.inv_freq: file needs weights that carry rotary frequencies (init_from); use fp32 or "
          "fp16_rounded");
    options.inv_freq = inv_freq;
  }
  return std::make_unique<models::Esm2>(context, config.model, options);
}

int64_t effective_threads(int64_t configured) {
  if (configured > 0) return configured;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? std::max(1, CPU_COUNT(&cpus)) : 1;
}

bool is_in_folder(const std::string& path, const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::equivalent(std::filesystem::path(path) / "..", folder, ignored);
}

std::optional<checkpoint::OpenCheckpoint> find_resume(const std::string& resume, checkpoint::CheckpointStore& store,
                                                      const std::string& run_dir) {
  if (resume == "auto") return store.newest_complete();
  if (resume != "none") {
    if (!std::filesystem::exists(resume))
      fail<CheckpointError>(
          "--resume {}: there is no such folder; expected auto, none, or the folder of a checkpoint{}", resume,
          store.list().empty() ? "" : fmt::format(" (newest: {})", store.list().front().path));
    if (std::filesystem::is_directory(std::filesystem::path(resume) / "checkpoints"))
      fail<CheckpointError>(
          "--resume {}: that is the folder of a run; give one in {}/checkpoints, or --resume auto with "
          "--run.dir {}",
          resume, resume, resume);
    checkpoint::OpenCheckpoint found(resume);
    if (!store.list().empty() && !is_in_folder(resume, store.path()))
      fail<ConfigError>(
          "{} holds checkpoints of its own (newest: {}), so {} cannot be resumed there; choose another "
          "run.dir",
          run_dir, store.list().front().path, resume);
    return found;
  }
  if (!store.list().empty())
    fail<ConfigError>("{} already holds checkpoints (newest: {}); go on with --resume auto, or choose another run.dir",
                      run_dir, store.list().front().path);
  return std::nullopt;
}

}  // namespace esm::train
