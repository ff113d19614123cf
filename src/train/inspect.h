// `esmtrain inspect`: what a model on disk is, whether it is sound, and how two of them differ. Reads only.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/manifest.h"
#include "train/model_io.h"
#include "train/state.h"

namespace esm::train {

struct InspectedFile {
  enum class Check {
    kNone,     // there is nothing to compare it with
    kSize,     // as large as the manifest says
    kContent,  // and its hash is right
    kDamaged   // see `problem`
  };
  std::string name;  // in the folder
  int64_t bytes = 0;
  Check check = Check::kNone;
  std::string problem;
};

/// Another checkpoint of the same run.
struct RunCheckpoint {
  int64_t step = 0;
  std::optional<double> metric;
  bool pinned = false, best = false, described = false;
};

struct ResumeAdvice {
  bool possible = false;
  std::string command;  // "" when it is not possible
  std::string note;     // why not, or what to mind; may be ""
};

/// What only checkpoints of ours say.
struct CheckpointFacts {
  checkpoint::Manifest manifest;
  std::optional<TrainState> state;   // none: a conversion
  std::map<DType, int64_t> moments;  // tensors of the optimizer's moments by element type; empty: weights only
  std::string imported_from;         // format that the weights once came from, "" for none
  ResumeAdvice resume;
  std::vector<RunCheckpoint> siblings;  // of the run folder that was named, by step; else empty
};

struct Inspection {
  std::string path;  // of what is described: the checkpoint inside a run folder
  Format format = Format::kNative;
  std::optional<models::Esm2Config> model;  // none: the manifest holds another kind, see `problems`
  int64_t parameters = 0;                   // contact head not counted
  bool contact_head = false;
  std::map<DType, int64_t> weights;  // tensors of the model by element type, as stored
  std::vector<std::string> passed_through;
  std::map<std::string, std::string> versions;  // of the programs that wrote it
  std::optional<CheckpointFacts> own;
  std::vector<InspectedFile> files;
  std::vector<std::string> notes;
  std::vector<std::string> problems;  // what keeps it from being used
  std::optional<ModelSource> source;  // none when there are problems
};

/// Describes a checkpoint, a run folder (its newest complete checkpoint, the one that `--resume auto` takes), a Hugging
/// Face or NVIDIA folder, or a .safetensors file with config.json beside it. Damage of a checkpoint of ours is reported
/// in `problems`; whatever else cannot be opened throws CheckpointError. kContent: hashes every file.
Inspection inspect_model(const std::string& path, checkpoint::Verify verify);

/// Figures of the finite values; 0 where there are none.
struct ValueSummary {
  double norm = 0;  // L2
  double mean = 0;
  double abs_max = 0;
  int64_t not_finite = 0;
};
ValueSummary summarize(std::span<const float> values);

struct TensorSummary {
  std::string name;  // as in the file
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::optional<ValueSummary> values;  // none for integers
};
/// Every stored tensor, in the order of the files: of checkpoints of ours with moments and what is passed through. E4M3
/// weights count with their factor, one-byte moments as their codes.
std::vector<TensorSummary> summarize_tensors(const ModelSource& source);

struct ValueDifference {
  double max_abs = 0;  // over elements that are finite in both
  double norm = 0;     // L2 of a - b over these
  double norm_a = 0;   // L2 of the finite values
  double norm_b = 0;
  int64_t differing = 0;   // elements, by their bits (so -0 differs from 0)
  int64_t not_finite = 0;  // elements that are not finite in at least one
};
/// Equal sizes.
ValueDifference difference(std::span<const float> a, std::span<const float> b);

struct TensorDifference {
  std::string name;                             // native
  std::optional<std::vector<int64_t>> shape_a;  // none: absent
  std::optional<std::vector<int64_t>> shape_b;
  std::optional<ValueDifference> values;  // none: the shapes differ
};

struct SettingDifference {
  std::string key;
  std::optional<std::string> a, b;  // none: this version of the program had no such key
};

struct Comparison {
  bool whole_config = false;  // false: one of them has no run's config, so only the model's settings were compared
  std::vector<SettingDifference> settings;
  std::vector<TensorDifference> tensors;  // those that differ, in model order
  int64_t equal_tensors = 0;
};
/// Parameters are compared as FP32, whatever the formats. Throws CheckpointError when one of them has problems.
Comparison compare(const Inspection& a, const Inspection& b);
/// Keys whose values differ between two configs that any version of the program wrote. Throws CheckpointError for text
/// that is not YAML.
std::vector<SettingDifference> compare_settings(const std::string& yaml_a, const std::string& yaml_b);

struct InspectReport {
  Inspection inspection;
  std::vector<TensorSummary> tensors;
  bool with_tensors = false;
  std::optional<std::pair<std::string, Comparison>> other;  // its path
};
std::string inspect_text(const InspectReport& report);
/// One JSON object.
std::string inspect_json(const InspectReport& report);

}  // namespace esm::train
