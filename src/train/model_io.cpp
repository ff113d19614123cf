#include "train/model_io.h"

#include <array>
#include <filesystem>

#include "base/check.h"
#include "checkpoint/folder.h"
#include "checkpoint/open_checkpoint.h"
#include "config/config.h"
#include "train/model_source.h"
#include "train/tensor_rows.h"

namespace esm::train {
namespace fs = std::filesystem;
using checkpoint::element_count;
using checkpoint::TensorOut;
using checkpoint::TensorRef;
namespace {

constexpr std::array kFormats{std::pair{Format::kNative, std::string_view("native")},
                              std::pair{Format::kHf, std::string_view("hf")},
                              std::pair{Format::kNvidia, std::string_view("nvidia")},
                              std::pair{Format::kNvidiaOld, std::string_view("nvidia-old")},
                              std::pair{Format::kFairEsm, std::string_view("fair-esm")}};

// --- our own -----------------------------------------------------------------------------------------------------

std::shared_ptr<ModelSource::Impl> open_native(const std::string& path, checkpoint::Verify verify) {
  auto impl = std::make_shared<ModelSource::Impl>();
  impl->path = path;
  impl->checkpoint.emplace(path, verify);
  const checkpoint::Manifest& manifest = impl->checkpoint->manifest();
  impl->config = read_model_config(manifest, path);
  impl->step = manifest.step;
  impl->config_yaml = manifest.config_yaml;
  std::vector<checkpoint::ExpectedTensor> expected;
  for (const models::NamedShape& tensor : models::native_tensors(impl->config)) {
    // BF16: of a run whose master weights are.
    const TensorRef* found = impl->checkpoint->find(checkpoint::Role::kParameter, tensor.name);
    const bool bf16 = found != nullptr && found->dtype == DType::kBF16;
    expected.push_back({.name = tensor.name, .shape = tensor.shape, .dtype = bf16 ? DType::kBF16 : DType::kF32});
  }
  for (const models::NamedShape& tensor : models::native_contact_tensors(impl->config))
    expected.push_back({.name = tensor.name, .shape = tensor.shape, .optional = true});
  impl->checkpoint->require(checkpoint::Role::kParameter, expected);
  for (const TensorRef* tensor : impl->checkpoint->tensors(checkpoint::Role::kParameter)) {
    impl->parts[tensor->name].push_back({.tensor = tensor, .rows = {}});
    ++impl->report.used;
  }
  impl->origin_json = manifest.origin_json;
  if (!manifest.origin_json.empty()) impl->origin = parse_origin(manifest.origin_json, path);
  for (const TensorRef* tensor : impl->checkpoint->tensors(checkpoint::Role::kPassThrough)) {
    impl->passthrough.push_back(passed_through(*tensor));
    if (impl->side_file_of(tensor->name).empty()) impl->report.passed_through.push_back(tensor->name);
  }
  find_inv_freq(*impl);
  if (impl->config.inv_freq == models::InvFreq::kFile && impl->inv_freq.empty())
    fail<CheckpointError>("{}: the model takes its rotary frequencies from the file, which holds none", path);
  return impl;
}

std::string best_or_newest(const std::string& folder) {
  checkpoint::CheckpointFolder checkpoints(folder);
  if (const auto best = checkpoint::best_of(checkpoints.complete_steps()); best.has_value()) return best->path;
  if (const auto newest = checkpoints.newest_complete(); newest.has_value()) return newest->path();
  fail<CheckpointError>("{}: there is no complete checkpoint in this folder", folder);
}

bool has_step_folders(const std::string& path) { return !checkpoint::CheckpointFolder(path).list().empty(); }

std::shared_ptr<ModelSource::Impl> open_impl(const std::string& path, checkpoint::Verify verify) {
  const fs::path where(path);
  if (!fs::exists(where)) fail<CheckpointError>("{}: no such file or folder", path);
  if (!fs::is_directory(where)) {
    if (where.extension() == ".safetensors")
      return open_safetensors_model(path, (where.parent_path() / "config.json").string());
    if (where.extension() == ".pt" || checkpoint::is_torch_file(path)) return open_fair_esm_model(path);
    fail<CheckpointError>(
        "{}: a folder, a .safetensors file or a .pt file of fair-esm is wanted (transformers writes the second with "
        "safe_serialization=True)",
        path);
  }
  if (fs::exists(where / checkpoint::kManifestName)) return open_native(path, verify);
  if (fs::is_directory(where / "checkpoints"))
    return open_native(best_or_newest((where / "checkpoints").string()), verify);
  if (has_step_folders(path)) return open_native(best_or_newest(path), verify);
  return open_safetensors_model(path, (where / "config.json").string());
}

}  // namespace

models::Esm2Config read_model_config(const checkpoint::Manifest& manifest, const std::string& path) {
  if (manifest.model_kind != "esm2")
    fail<CheckpointError>("{} holds a model of kind '{}'; esm2 is wanted", path, manifest.model_kind);
  models::Esm2Config config;
  try {
    config::load_text(config, manifest.model_yaml, path + ": model");
  } catch (const ConfigError& e) {
    fail<CheckpointError>("{}", e.what());
  }
  return config;
}

std::string_view format_name(Format format) {
  for (const auto& [value, name] : kFormats)
    if (value == format) return name;
  return "?";
}

std::optional<Format> parse_format(std::string_view name) {
  for (const auto& [value, text] : kFormats)
    if (text == name) return value;
  return std::nullopt;
}

ModelSource open_model(const std::string& path, checkpoint::Verify verify) {
  std::shared_ptr<ModelSource::Impl> impl = open_impl(path, verify);
  for (const models::NamedShape& tensor : models::native_tensors(impl->config))
    impl->tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  const std::vector<models::NamedShape> contact = models::native_contact_tensors(impl->config);
  const bool has_weight = impl->parts.contains(contact[0].name), has_bias = impl->parts.contains(contact[1].name);
  if (has_weight != has_bias) fail<CheckpointError>("{}: the contact head lacks its weight or its bias", impl->path);
  if (has_weight)
    for (const models::NamedShape& tensor : contact)
      impl->tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  return ModelSource(std::move(impl));
}

Format ModelSource::format() const { return impl_->format; }
const std::string& ModelSource::path() const { return impl_->path; }
const models::Esm2Config& ModelSource::config() const { return impl_->config; }
int64_t ModelSource::step() const { return impl_->step; }
DType ModelSource::dtype() const {
  const bool converted = impl_->origin.has_value() && impl_->config_yaml.empty();
  return converted ? impl_->origin->dtype : DType::kF32;
}
const std::vector<ModelTensor>& ModelSource::tensors() const { return impl_->tensors; }
bool ModelSource::has(std::string_view name) const { return impl_->parts.contains(name); }

void ModelSource::copy_to(std::string_view name, std::span<float> out) const {
  for (const ModelTensor& tensor : impl_->tensors) {
    if (tensor.name != name) continue;
    ESM_CHECK(static_cast<int64_t>(out.size()) == element_count(tensor.shape), "'{}' has {} elements, not {}", name,
              element_count(tensor.shape), out.size());
    for (const Impl::Part& part : impl_->parts.find(name)->second)
      copy_into_native(*part.tensor, part.rows, part.factor, out);
    return;
  }
  fail<CheckpointError>("{}: there is no tensor '{}'", impl_->path, name);
}

std::vector<float> ModelSource::read(std::string_view name) const {
  for (const ModelTensor& tensor : impl_->tensors) {
    if (tensor.name != name) continue;
    std::vector<float> values(static_cast<size_t>(element_count(tensor.shape)));
    copy_to(name, values);
    return values;
  }
  fail<CheckpointError>("{}: there is no tensor '{}'", impl_->path, name);
}

int64_t ModelSource::parameter_count() const {
  int64_t count = 0;
  for (const models::NamedShape& tensor : models::native_tensors(impl_->config)) count += element_count(tensor.shape);
  return count;
}

const std::vector<float>& ModelSource::inv_freq() const { return impl_->inv_freq; }
const std::vector<TensorOut>& ModelSource::passthrough() const { return impl_->passthrough; }
const std::string& ModelSource::origin_json() const { return impl_->origin_json; }
const KeyReport& ModelSource::report() const { return impl_->report; }

}  // namespace esm::train
