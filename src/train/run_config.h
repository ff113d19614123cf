// Everything a training run can be told, from one declaration a field. Sections live beside their users.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "config/field.h"
#include "data/data_config.h"
#include "models/esm2_config.h"
#include "nn/recompute.h"
#include "precision/fp8_config.h"
#include "precision/layer_plan.h"
#include "precision/recipe.h"
#include "precision/state_formats.h"
#include "train/schedule.h"

namespace esm::train {

/// What to do with a step whose loss or gradient is not finite.
enum class NonFinite { kSkip, kStop };
constexpr auto enum_names(NonFinite) { return std::array{"skip", "stop"}; }

/// What to do when a checkpoint cannot be written (disk full, read-only): go on and try again at the next interval, or
/// stop.
enum class SaveError { kContinue, kStop };
constexpr auto enum_names(SaveError) { return std::array{"continue", "stop"}; }

/// Where a run works. kAuto: on the first CUDA device if there is one that this build can use, else on the CPU.
enum class DeviceChoice { kAuto, kCpu, kCuda };
constexpr auto enum_names(DeviceChoice) { return std::array{"auto", "cpu", "cuda"}; }

/// Attention on a CUDA device. kAuto: the fastest backend that can do the sizes.
enum class AttentionChoice { kAuto, kFlash2, kCudnn, kSimple };
constexpr auto enum_names(AttentionChoice) { return std::array{"auto", "flash2", "cudnn", "simple"}; }

struct RunSection {
  ESM_CONFIG(RunSection)
  std::string dir = "runs/esm2";
  ESM_FIELD(dir, "Folder of the run: config.yaml, metrics.jsonl, train.log, checkpoints/.", config::non_empty())
  int64_t log_every_steps = 10;
  ESM_FIELD(log_every_steps, "Steps between two plain progress lines (a terminal shows a live line instead).",
            config::at_least(1))
  bool tensorboard = false;
  ESM_FIELD(tensorboard, "Whether the metrics are also written as TensorBoard event files, into tensorboard/.")
  bool csv = false;
  ESM_FIELD(csv, "Whether the rows of the steps are also written to metrics.csv.")
};

struct TrainSection {
  ESM_CONFIG(TrainSection)
  int64_t max_steps = 500000;
  ESM_FIELD(max_steps, "Optimizer steps of the whole run.", config::at_least(1), config::Resume::kWarn)
  int64_t micro_batches = 1;
  ESM_FIELD(micro_batches, "Micro-batches accumulated into one optimizer step (per rank).", config::at_least(1),
            config::Resume::kWarn)
  double clip_norm = 1.0;
  ESM_FIELD(clip_norm, "Limit of the global gradient norm; 0: no clipping.", config::at_least(0), config::Resume::kWarn)
  double label_smoothing = 0.0;
  ESM_FIELD(label_smoothing, "Share of the target probability spread evenly over the vocabulary.",
            config::between(0, 0.99), config::Resume::kWarn)
  nn::Recompute recompute = nn::Recompute::kNone;
  ESM_FIELD(recompute,
            "Activations computed again in backward to save memory; does not change results. Kept a token and layer "
            "(D hidden, BF16) and extra arithmetic in products: none 20 D bytes; selective 12 D bytes, + 11 % (the "
            "feed-forward before its GELU); full 2 D bytes, + 22 % and the attention once more.")
  int64_t recompute_layers = 0;
  ESM_FIELD(recompute_layers,
            "Layers, from the first on, to which train.recompute applies; the others keep everything. 0: all. As many "
            "as memory needs: each costs its share of the time.",
            config::at_least(0))
  NonFinite nonfinite = NonFinite::kSkip;
  ESM_FIELD(nonfinite, "A step whose loss or gradient is not finite: leave the weights alone and go on, or stop.")
  int64_t max_consecutive_skips = 10;
  ESM_FIELD(max_consecutive_skips, "Skipped steps in a row after which the run stops.", config::at_least(1))
  int64_t threads = 0;
  ESM_FIELD(threads,
            "CPU threads of tensor operations; 0: all cores of this process. Results are bit-equal only for an "
            "equal number.",
            config::between(0, 1024), config::Resume::kWarn)
};

struct OptimizerSection {
  ESM_CONFIG(OptimizerSection)
  double lr = 4e-4;
  ESM_FIELD(lr, "Peak learning rate of AdamW.", config::positive(), config::Resume::kWarn)
  double beta1 = 0.9;
  ESM_FIELD(beta1, "Decay of the first moment.", config::between(0, 0.999999), config::Resume::kWarn)
  double beta2 = 0.98;
  ESM_FIELD(beta2, "Decay of the second moment.", config::between(0, 0.999999), config::Resume::kWarn)
  double eps = 1e-8;
  ESM_FIELD(eps, "Added to the root of the second moment.", config::positive(), config::Resume::kWarn)
  double weight_decay = 0.01;
  ESM_FIELD(weight_decay, "Decoupled weight decay.", config::at_least(0), config::Resume::kWarn)
  bool decay_norms_and_biases = true;
  ESM_FIELD(decay_norms_and_biases, "Whether LayerNorm parameters and biases decay too.", config::Resume::kWarn)
  precision::MasterFormat master = precision::MasterFormat::kF32;
  ESM_FIELD(master,
            "How weights are kept beside the BF16 copy that is computed with. fp32: 4 bytes a parameter; "
            "bf16_remainder: the low 16 bits, 2 bytes, which with the copy are exactly the FP32 weights (same results "
            "bit for bit); bf16: nothing, 0 bytes: the copy alone is trained, rounded stochastically, which loses "
            "precision. The last two need a precision other than fp32.",
            config::Resume::kFixed)
  precision::MomentFormat moments = precision::MomentFormat::kF32;
  ESM_FIELD(moments,
            "How the two moments are kept. fp32: 8 bytes a parameter; bf16: 4 bytes, rounded stochastically; fp8: 2.06 "
            "bytes, E4M3 with a scale for each 128 elements, rounded stochastically.",
            config::Resume::kFixed)
  std::map<std::string, double> lr_multipliers;
  ESM_FIELD(lr_multipliers,
            "Factor on the learning rate by prefix of the parameter name, the longest prefix wins, e.g. "
            "{embedding: 0.5, layers.0: 0.1, head: 2}.",
            config::Resume::kWarn)

  void cross_check(config::Problems& problems) const {
    for (const auto& [prefix, factor] : lr_multipliers)
      if (!(factor >= 0))
        problems.add("lr_multipliers", "{}: a factor of at least 0 is wanted, found {}", prefix, factor);
  }
};

struct EvalSection {
  ESM_CONFIG(EvalSection)
  int64_t every_steps = 0;
  ESM_FIELD(every_steps, "Steps between two validations; 0: only after the last step.", config::at_least(0))
  int64_t max_batches = 0;
  ESM_FIELD(max_batches, "Batches of each validation set that are looked at; 0: all.", config::at_least(0))
  std::string monitor;
  ESM_FIELD(monitor,
            "Validation set whose loss decides on the best checkpoint and on stopping early; empty: the first by "
            "name.")
  int64_t patience = 0;
  ESM_FIELD(patience, "Stop after so many validations without an improvement; 0: never.", config::at_least(0))
  double min_improvement = 0.0;
  ESM_FIELD(min_improvement, "Fall of the loss (nats) that counts as an improvement.", config::at_least(0))
};

struct CheckpointSection {
  ESM_CONFIG(CheckpointSection)
  int64_t every_steps = 1000;
  ESM_FIELD(every_steps, "Steps between two checkpoints; 0: only at the end. A stop signal always saves.",
            config::at_least(0))
  int64_t keep_last = 2;
  ESM_FIELD(keep_last, "Newest checkpoints that are kept.", config::at_least(1))
  int64_t keep_every_steps = 0;
  ESM_FIELD(keep_every_steps, "Checkpoints at multiples of this step are never removed; 0: no such.",
            config::at_least(0))
  bool keep_best = true;
  ESM_FIELD(keep_best, "Whether the checkpoint with the lowest validation loss is kept.")
  bool async = true;
  ESM_FIELD(async,
            "Write checkpoints while training goes on, from a copy in host memory as large as the checkpoint; false: "
            "training waits until they are written. Changes no result. The last one is always waited for.",
            config::Resume::kFree)
  SaveError on_error = SaveError::kContinue;
  ESM_FIELD(on_error, "A checkpoint that cannot be written: go on and try again at the next interval, or stop.")
};

struct ExpectSection {
  ESM_CONFIG(ExpectSection)
  std::optional<double> valid_loss_below;
  ESM_FIELD(valid_loss_below, "The last validation loss (nats) of the monitored set must be below this.")
  std::optional<double> train_loss_below;
  ESM_FIELD(train_loss_below, "The mean training loss of the last 10 steps must be below this.")
  std::optional<double> tokens_per_s_above;
  ESM_FIELD(tokens_per_s_above, "Real tokens per second over the whole run (steps only) must be above this.")
};

struct RunConfig {
  ESM_CONFIG(RunConfig)
  RunSection run;
  ESM_GROUP(run, "Where the run lives and what it prints.")
  int64_t seed = 42;
  ESM_FIELD(seed, "Seed of initial weights, data order, crops and masks.", config::at_least(0), config::Resume::kFixed)
  std::string init_from;
  ESM_FIELD(init_from,
            "Start from these weights (a checkpoint or run of ours, a Hugging Face or NVIDIA folder, a .pt file of "
            "fair-esm); the shape of the model comes from there. Empty: random weights.",
            config::Resume::kFree)
  precision::Precision precision = precision::Precision::kBf16;
  ESM_FIELD(precision,
            "Recipe of the matrix products of the encoder layers; activations are BF16 except in fp32. fp8_*: E4M3 and "
            "E5M2, with scales by tensor from earlier steps (delayed) or its own amax (current), by 128 elements "
            "(block) or by row (outer). mxfp8, nvfp4: scales by 32 or 16 elements. What a device lacks is emulated or "
            "refused, and the log says so.",
            config::Resume::kWarn)
  std::map<std::string, std::string> layer_precision;
  ESM_FIELD(layer_precision,
            "Layers with a recipe of their own, counted from 1, e.g. {bf16: \"1-2, 32-33\", fp8_current: [5, 6]}. Not "
            "with precision: fp32.",
            config::Resume::kWarn)
  DeviceChoice device = DeviceChoice::kAuto;
  ESM_FIELD(device, "Where the run works; auto: on a CUDA device if there is one that this program can use.",
            config::Resume::kWarn)
  AttentionChoice attention = AttentionChoice::kAuto;
  ESM_FIELD(attention, "Attention kernels on a CUDA device; auto: the fastest that can do the sizes.",
            config::Resume::kWarn)
  bool cuda_graph = true;
  ESM_FIELD(
      cuda_graph,
      "On a CUDA device the work of a step is recorded once and replayed; off: for looking into a problem. Changes "
      "no result.",
      config::Resume::kFree)
  bool deterministic = false;
  ESM_FIELD(deterministic,
            "On a CUDA device: the same bits from run to run on devices of one kind. Only kernels whose sums have a "
            "fixed order, none chosen by timing; slower. (On the CPU runs are so anyhow, for one number of threads.)",
            config::Resume::kWarn)
  models::Esm2Config model;
  ESM_GROUP(model, "Shape and options of the model.")
  data::DataConfig data;
  ESM_GROUP(data, "Training and validation data, packing, masking.")
  TrainSection train;
  ESM_GROUP(train, "The training loop.")
  OptimizerSection optimizer;
  ESM_GROUP(optimizer, "AdamW.")
  precision::Fp8Section fp8;
  ESM_GROUP(fp8, "FP8, MXFP8 and NVFP4: scales, layers that stay in BF16, and what is watched.")
  ScheduleConfig schedule;
  ESM_GROUP(schedule, "Learning rate over the steps.")
  EvalSection eval;
  ESM_GROUP(eval, "Validation during training.")
  CheckpointSection checkpoint;
  ESM_GROUP(checkpoint, "Checkpoints and which of them are kept.")
  ExpectSection expect;
  ESM_GROUP(expect, "What must hold at the end; otherwise the exit code is 7. For smoke runs in CI.")

  /// Of the model's layers; ConfigError when layer_precision or fp8 does not fit them.
  precision::PrecisionPlan precision_plan() const {
    return precision::make_precision_plan(precision, layer_precision, fp8.first_layers_bf16, fp8.last_layers_bf16,
                                          model.layers);
  }

  void cross_check(config::Problems& problems) const {
    // With init_from the model is known later; precision_plan() checks again.
    const int64_t layers = init_from.empty() ? model.layers : 0;
    for (const precision::PlanProblem& problem :
         precision::plan_problems(precision, layer_precision, fp8.first_layers_bf16, fp8.last_layers_bf16, layers))
      problems.add(problem.key, "{}", problem.what);
    if (!eval.monitor.empty() && !data.valid.contains(eval.monitor))
      problems.add("eval.monitor", "'{}' is not among the names of data.valid", eval.monitor);
    if (eval.patience > 0 && eval.every_steps == 0)
      problems.add("eval.patience", "needs eval.every_steps above 0: without it nothing is validated before the end");
    if (precision == precision::Precision::kFp32 && optimizer.master != precision::MasterFormat::kF32)
      problems.add(
          "optimizer.master",
          "{} needs a precision other than fp32, e.g. bf16: with precision: fp32 there is no BF16 copy of the weights",
          kernels::enum_names(optimizer.master)[static_cast<size_t>(optimizer.master)]);
    if (train.recompute_layers > 0 && train.recompute == nn::Recompute::kNone)
      problems.add("train.recompute_layers", "needs train.recompute: selective or full");
    if (layers > 0 && train.recompute_layers > layers)
      problems.add("train.recompute_layers", "{}: the model has {} layers", train.recompute_layers, layers);
    if (expect.valid_loss_below.has_value() && data.valid.empty())
      problems.add("expect.valid_loss_below", "needs data.valid");
  }
};

}  // namespace esm::train
