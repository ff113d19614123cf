// What stands behind a ModelSource; private to the files that open, export and inspect models.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/open_checkpoint.h"
#include "checkpoint/torch_file.h"
#include "models/name_map.h"
#include "models/nvidia_format.h"
#include "train/model_io.h"

namespace esm::train {

/// Where imported weights came from, kept in every checkpoint made of them so that an export to the same format gives
/// the same set of tensors.
struct Origin {
  Format format = Format::kHf;
  DType dtype = DType::kF32;                      // of the weights; F8_E4M3 if any matrix is
  std::map<std::string, DType> dtypes;            // of the foreign tensors that differ from it
  bool has_decoder = false;                       // a second copy of the embedding was stored as the decoder
  models::NvidiaVariant variant;                  // NVIDIA formats
  std::string config_json;                        // the source's config.json, or fair-esm's settings
  std::map<std::string, std::string> side_files;  // tensors of files beside the model's: name -> file
};

/// A name under which a side file can be written beside the model's own files.
bool is_side_file_name(const std::string& name);

std::string origin_text(const Origin& origin);
Origin parse_origin(const std::string& json_text, const std::string& where);

/// Shape of the model in a checkpoint of ours. Throws CheckpointError for another kind of model.
models::Esm2Config read_model_config(const checkpoint::Manifest& manifest, const std::string& path);

struct ModelSource::Impl {
  /// A piece of a native tensor.
  struct Part {
    const checkpoint::TensorRef* tensor = nullptr;
    models::RowMap rows;
    float factor = 1;  // on the codes of F8_E4M3
  };

  Format format = Format::kNative;
  std::string path;
  models::Esm2Config config;
  int64_t step = 0;
  std::string config_yaml;  // of the run that trained these weights; empty: a pure conversion
  std::vector<ModelTensor> tensors;
  std::map<std::string, std::vector<Part>, std::less<>> parts;  // by native name
  std::vector<float> inv_freq;
  std::vector<checkpoint::TensorOut> passthrough;
  std::optional<Origin> origin;
  std::string origin_json;
  KeyReport report;

  /// File beside the model's that a passed-through tensor came from, "" for the model's own.
  std::string side_file_of(const std::string& tensor) const {
    if (!origin.has_value()) return "";
    const auto it = origin->side_files.find(tensor);
    return it == origin->side_files.end() ? "" : it->second;
  }

  /// Those that config.inv_freq stands for, [head_dim / 2].
  std::vector<float> rotary_frequencies() const;

  // Owners of the mapped files.
  std::optional<checkpoint::OpenCheckpoint> checkpoint;
  std::optional<checkpoint::SafetensorsSet> files;
  std::vector<checkpoint::SafetensorsFile> side_files;
  std::list<checkpoint::TorchFile> torch_files;
};

/// A folder with safetensors files, or one such file, in Hugging Face or NVIDIA naming.
std::shared_ptr<ModelSource::Impl> open_safetensors_model(const std::string& path, const std::string& config_path);
/// A .pt file of fair-esm, and the file of its contact head beside it.
std::shared_ptr<ModelSource::Impl> open_fair_esm_model(const std::string& path);

bool is_inv_freq_name(std::string_view name);
/// Finds inv_freq among the tensors that are passed through (one for all layers, or equal ones in each).
void find_inv_freq(ModelSource::Impl& impl);
/// By which rule they are reproduced.
models::InvFreq rule_of_inv_freq(const std::vector<float>& values, int64_t head_dim);

/// A tensor that is kept as it is.
checkpoint::TensorOut passed_through(const checkpoint::TensorRef& tensor);

}  // namespace esm::train
