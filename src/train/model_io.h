// Opens a model wherever it comes from, and writes it in the format somebody else wants. Formats: our checkpoints and
// run folders, Hugging Face (EsmForMaskedLM), NVIDIA TransformerEngine (NVEsmForMaskedLM, both generations of names),
// and to read the .pt files of fair-esm. No tensor library: values are plain FP32 host memory.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/open_checkpoint.h"
#include "checkpoint/safetensors.h"
#include "models/esm2_config.h"

namespace esm::train {

/// kFairEsm is read only.
enum class Format { kNative, kHf, kNvidia, kNvidiaOld, kFairEsm };
/// "native", "hf", "nvidia", "nvidia-old", "fair-esm".
std::string_view format_name(Format format);
std::optional<Format> parse_format(std::string_view name);

/// What became of every tensor of the source.
struct KeyReport {
  int64_t used = 0;                         // tensors of the source that fill ours
  std::vector<std::string> passed_through;  // kept as they are, not used by the model
  std::vector<std::string> notes;           // one line each, for people
};

struct ModelTensor {
  std::string name;  // native name, models/name_map.h
  std::vector<int64_t> shape;
};

/// An opened model; cheap to copy. Tensors are read from the mapped files when asked for.
class ModelSource {
 public:
  Format format() const;
  /// What was opened: the checkpoint inside a run folder, the file, ...
  const std::string& path() const;
  const models::Esm2Config& config() const;
  int64_t step() const;  // 0 for foreign formats
  /// Element type of the source's weights: the commonest where they are mixed, F8_E4M3 if matrices have it.
  DType dtype() const;

  /// Every parameter of the model, in model order; contact.weight [1, layers * heads] and contact.bias [1] come last if
  /// the source has them.
  const std::vector<ModelTensor>& tensors() const;
  bool has(std::string_view name) const;
  /// Converts tensor `name` into `out` (exactly its number of elements). Throws CheckpointError for an unknown name.
  void copy_to(std::string_view name, std::span<float> out) const;
  std::vector<float> read(std::string_view name) const;
  int64_t parameter_count() const;  // contact head not counted

  /// Rotary inverse frequencies [head_dim / 2] of the source, empty when it has none. config().inv_freq says which rule
  /// reproduces them (kFile: none does, give these to the model).
  const std::vector<float>& inv_freq() const;
  /// Tensors that the model does not use (spans live as long as this source); hand them and origin_json() to
  /// SaveRequest so that a later export to the source's format is complete.
  const std::vector<checkpoint::TensorOut>& passthrough() const;
  const std::string& origin_json() const;

  const KeyReport& report() const;

  struct Impl;  // train/model_source.h
  explicit ModelSource(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Opens, in this order of detection: a checkpoint folder of ours (manifest.json); a run folder (checkpoints/: the best
/// one, else the newest complete one) or its checkpoints folder; a folder with config.json and safetensors files in
/// Hugging Face or NVIDIA naming; a single .safetensors file with config.json beside it; a .pt file of fair-esm, with
/// NAME-contact-regression.pt beside it or not (nothing of a pickle is run). All of the source is checked
/// (our own files by hash). Throws CheckpointError: missing or unexpected tensors by name, first differing shape, an
/// untied decoder, a model that is not ESM-2, an 8-bit weight without a sound factor.
/// verify: kSizes for a checkpoint of ours whose content was verified a moment ago.
ModelSource open_model(const std::string& path, checkpoint::Verify verify = checkpoint::Verify::kContent);

/// should_stop() said yes: nothing was left behind.
class ExportStopped : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return kExitInterrupted; }
};

struct ExportOptions {
  Format format = Format::kHf;
  std::string out;  // folder to make
  /// Element type of the weights: F32, F16, BF16, or F8_E4M3 for the matrices of the encoder layers
  /// (train/fp8_weights.h; all else is F32 then). Default: that of the source for weights that are exactly a conversion
  /// of it, FP32 for anything trained here. Native checkpoints are F32.
  std::optional<DType> dtype;
  bool force = false;  // replace an existing folder
  int64_t max_file_bytes = int64_t{5} << 30;
  std::map<std::string, std::string> versions;  // for the manifest of a native export
  std::function<bool()> should_stop = {};       // asked again and again while files are written
};

struct ExportResult {
  DType dtype = DType::kF32;
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::vector<std::string> files;     // names in `out`
  std::vector<std::string> left_out;  // tensors, and files beside the model's, that have no place in the format
  std::vector<std::string> notes;
};

/// Writes the folder `out` under a temporary name and renames it. Throws CheckpointError (values that are not finite
/// have no 8 bits) and ExportStopped.
ExportResult export_model(const ModelSource& source, const ExportOptions& options);

}  // namespace esm::train
