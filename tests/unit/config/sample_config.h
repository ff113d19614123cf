// A config of realistic size with every kind of field, for the tests of this folder.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/config.h"
#include "config/field.h"

namespace sample {

namespace config = esm::config;

enum class Activation { kErf, kTanh, kSwiglu };
constexpr auto enum_names(Activation) { return std::array{"gelu_erf", "gelu_tanh", "swiglu"}; }

struct Model {
  ESM_CONFIG(Model)
  int64_t layers = 6;
  ESM_FIELD(layers, "Encoder layers.", config::at_least(1), config::Resume::kFixed)
  int64_t hidden = 320;
  ESM_FIELD(hidden, "Hidden size.", config::at_least(2), config::Resume::kFixed)
  int64_t heads = 20;
  ESM_FIELD(heads, "Attention heads.", config::at_least(1), config::Resume::kFixed)
  Activation activation = Activation::kErf;
  ESM_FIELD(activation, "Activation.")
  bool token_dropout = true;
  ESM_FIELD(token_dropout, "Token dropout.")
  double layer_norm_eps = 1e-5;
  ESM_FIELD(layer_norm_eps, "Epsilon.", config::positive())

  void cross_check(config::Problems& problems) const {
    if (hidden % heads != 0) problems.add("hidden", "hidden {} must be a multiple of heads = {}", hidden, heads);
  }
};

struct Schedule {
  ESM_CONFIG(Schedule)
  int64_t warmup_steps = 2000;
  ESM_FIELD(warmup_steps, "Warm-up.", config::at_least(0))
  std::optional<int64_t> decay_steps;
  ESM_FIELD(decay_steps, "Decay; null: none.", config::at_least(1))

  void cross_check(config::Problems& problems) const {
    if (decay_steps && *decay_steps < warmup_steps) problems.add("decay_steps", "shorter than the warm-up");
  }
};

struct Optimizer {
  ESM_CONFIG(Optimizer)
  double lr = 4e-4;
  ESM_FIELD(lr, "Peak learning rate.", config::positive(), config::Resume::kWarn)
  double weight_decay = 0.01;
  ESM_FIELD(weight_decay, "Decoupled weight decay.", config::at_least(0))
  double beta1 = 0.9;
  ESM_FIELD(beta1, "First decay.", config::between(0, 0.999999))
  double beta2 = 0.98;
  ESM_FIELD(beta2, "Second decay.", config::between(0, 0.999999))
  std::optional<double> clip_norm = 1.0;
  ESM_FIELD(clip_norm, "Clip; null: off.", config::positive())
  std::map<std::string, double> lr_multipliers;
  ESM_FIELD(lr_multipliers, "Factors by name.")
  std::map<std::string, std::string> notes;
  ESM_FIELD(notes, "Texts by name.")
  Schedule schedule;
  ESM_GROUP(schedule, "Learning rate over time.")
};

struct Data {
  ESM_CONFIG(Data)
  std::vector<std::string> train = {"a.fasta"};
  ESM_FIELD(train, "Training files.", config::non_empty())
  std::map<std::string, std::vector<std::string>> valid;
  ESM_FIELD(valid, "Validation sets.", config::default_name("valid"))
  int64_t tokens_per_batch = 8192;
  ESM_FIELD(tokens_per_batch, "Token slots | a micro-batch.", config::multiple_of(128))
  std::vector<int64_t> sizes;
  ESM_FIELD(sizes, "Sizes.")
  double mask_rate = 0.15;
  ESM_FIELD(mask_rate, "Masked share.", config::between(0, 1))
  int64_t loader_threads = 1;
  ESM_FIELD(loader_threads, "Threads.", config::at_least(0), config::Resume::kFree)
};

struct Train {
  ESM_CONFIG(Train)
  int64_t max_steps = 1000;
  ESM_FIELD(max_steps, "Steps.", config::at_least(1))
  int64_t accumulate = 1;
  ESM_FIELD(accumulate, "Micro-batches a step.", config::at_least(1))
  double label_smoothing = 0;
  ESM_FIELD(label_smoothing, "Smoothing.", config::between(0, 0.99))
};

struct Run {
  ESM_CONFIG(Run)
  std::string dir = "runs/sample";
  ESM_FIELD(dir, "Folder.", config::non_empty())
  std::string note;
  ESM_FIELD(note, "Free text.")
};

struct Checkpoint {
  ESM_CONFIG(Checkpoint)
  int64_t every_steps = 100;
  ESM_FIELD(every_steps, "Interval.", config::at_least(0))
  int64_t keep_last = 2;
  ESM_FIELD(keep_last, "Newest kept.", config::at_least(1))
  bool keep_best = true;
  ESM_FIELD(keep_best, "Keep the best.")
};

struct Config {
  ESM_CONFIG(Config)
  int64_t seed = 42;
  ESM_FIELD(seed, "Seed.", config::Resume::kFixed)
  Run run;
  ESM_GROUP(run, "The run.")
  Data data;
  ESM_GROUP(data, "The data.")
  Model model;
  ESM_GROUP(model, "The model.")
  Optimizer optimizer;
  ESM_GROUP(optimizer, "AdamW.")
  Train train;
  ESM_GROUP(train, "The loop.")
  Checkpoint checkpoint;
  ESM_GROUP(checkpoint, "Saving.")
};

/// A good config as a user would write it, one key a line.
inline constexpr char kGoodYaml[] = R"(seed: 7
run:
  dir: runs/a
  note: first try
data:
  train: [a.fasta, b.fasta]
  valid: {main: c.fasta}
  tokens_per_batch: 8192
  mask_rate: 0.15
  loader_threads: 2
model:
  layers: 4
  hidden: 128
  heads: 8
  activation: gelu_tanh
  token_dropout: true
  layer_norm_eps: 1e-5
optimizer:
  lr: 4e-4
  weight_decay: 0.01
  beta1: 0.9
  beta2: 0.98
  clip_norm: 1
  schedule:
    warmup_steps: 10
    decay_steps: 1000
train:
  max_steps: 500
  accumulate: 2
  label_smoothing: 0.1
checkpoint:
  every_steps: 50
  keep_last: 3
  keep_best: false
)";

/// What load_text() throws for `yaml` (named x.yaml) and `overrides`; "" when it throws nothing.
inline std::string error_of(const std::string& yaml, const std::vector<config::Override>& overrides = {}) {
  Config c;
  try {
    config::load_text(c, yaml, "x.yaml", overrides);
  } catch (const esm::ConfigError& e) {
    return e.what();
  }
  return "";
}

inline config::Override set(const std::string& key, const std::string& value) {
  return {key, value, "--set " + key + "=" + value};
}

inline void write(const std::string& path, std::string_view text) { esm::write_file_atomically(path, text); }

}  // namespace sample
