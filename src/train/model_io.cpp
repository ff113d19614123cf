#include "train/model_io.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/files.h"
#include "base/half.h"
#include "checkpoint/folder.h"
#include "checkpoint/open_checkpoint.h"
#include "config/config.h"
#include "models/hf_format.h"
#include "models/nvidia_format.h"
#include "train/fp8_weights.h"
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
                              std::pair{Format::kNvidiaOld, std::string_view("nvidia-old")}};

std::string read_text(const std::string& path) {
  try {
    return read_text_file(path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
}

// --- rotary frequencies ------------------------------------------------------------------------------------------

// 10000^(-2i/d), as ops::rotary_inv_freq computes it.
std::vector<float> computed_inv_freq(int64_t head_dim) {
  std::vector<float> values;
  for (int64_t i = 0; i < head_dim; i += 2)
    values.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(head_dim))));
  return values;
}

// Equal within the last bits of a float: Hugging Face computes in FP32, and libraries' pow() differ.
bool nearly_equal(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 4e-7f * std::abs(b[i]))) return false;
  return true;
}

TensorOut passed_through(const TensorRef& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes, .make = {}};
}

// Finds inv_freq among the tensors that are passed through (one for all layers, or equal ones in each) and says by
// which rule it is reproduced.
void find_inv_freq(ModelSource::Impl& impl) {
  const int64_t head_dim = impl.config.head_dim();
  for (const TensorOut& tensor : impl.passthrough) {
    if (!impl.side_file_of(tensor.name).empty() || !tensor.name.ends_with("rotary_embeddings.inv_freq")) continue;
    if (!is_weight_dtype(tensor.dtype) || tensor.shape != std::vector<int64_t>{head_dim / 2})
      fail<CheckpointError>("{}: '{}' is {} {}, heads of {} have {} frequencies", impl.path, tensor.name,
                            dtype_name(tensor.dtype), checkpoint::shape_text(tensor.shape), head_dim, head_dim / 2);
    std::vector<float> values(static_cast<size_t>(head_dim / 2));
    to_floats(tensor.bytes, tensor.dtype, values);
    if (!impl.inv_freq.empty() && impl.inv_freq != values)
      fail<CheckpointError>("{}: '{}' differs from that of another layer, which is not supported", impl.path,
                            tensor.name);
    impl.inv_freq = std::move(values);
  }
}

std::vector<float> rounded_to_fp16(std::vector<float> values) {
  for (float& value : values) value = float_from_fp16(fp16_from_float(value));
  return values;
}

models::InvFreq rule_of_inv_freq(const std::vector<float>& values, int64_t head_dim) {
  if (values.empty()) return models::InvFreq::kFp32;
  const std::vector<float> computed = computed_inv_freq(head_dim);
  if (nearly_equal(values, computed)) return models::InvFreq::kFp32;
  return values == rounded_to_fp16(computed) ? models::InvFreq::kFp16Rounded : models::InvFreq::kFile;
}

// --- foreign formats ---------------------------------------------------------------------------------------------

// Factors of 8-bit weights belong to their weights and are no tensors of the model.
std::vector<models::NamedShape> shapes_of(const checkpoint::SafetensorsSet& files) {
  std::vector<models::NamedShape> shapes;
  for (const TensorRef* tensor : files.tensors())
    if (!is_scale_name(tensor->name)) shapes.push_back({tensor->name, tensor->shape});
  return shapes;
}

bool has_nvidia_names(const checkpoint::SafetensorsSet& files) {
  for (const TensorRef* tensor : files.tensors())
    if (tensor->name.find(".self_attention.layernorm_qkv.") != std::string::npos) return true;
  return false;
}

// Prefix and rows stand in the file itself: config.json of the two generations does not tell them apart reliably.
models::NvidiaVariant nvidia_variant(const checkpoint::SafetensorsSet& files, bool interleaved) {
  models::NvidiaVariant variant{.interleaved_qkv = interleaved};
  const TensorRef* embedding = files.find("model.embeddings.word_embeddings.weight");
  if (embedding == nullptr) {
    embedding = files.find("esm.embeddings.word_embeddings.weight");
    if (embedding != nullptr) variant.prefix = "esm";
  }
  if (embedding != nullptr && !embedding->shape.empty() && embedding->shape[0] > models::kVocabSize)
    variant.vocab_rows = embedding->shape[0];
  return variant;
}

// The commonest element type, or F8_E4M3 if a matrix has it, and the tensors of others.
void note_dtypes(const models::LayoutMatch& match, const checkpoint::SafetensorsSet& files, Origin& origin) {
  std::map<DType, int64_t> elements;
  for (const auto& pair : match.pairs) {
    const TensorRef& tensor = *files.find(pair.source);
    const bool codes = tensor.dtype == DType::kF8E4M3 && may_have_8_bits(*pair.tensor);
    if (!is_weight_dtype(tensor.dtype) && !codes)
      fail<CheckpointError>("tensor '{}' is {}; weights of F32, F16 or BF16 are wanted, or F8_E4M3 for matrices",
                            tensor.name, dtype_name(tensor.dtype));
    elements[tensor.dtype] += element_count(tensor.shape);
  }
  int64_t most = 0;
  for (const auto& [dtype, count] : elements)
    if (count > most) {
      most = count;
      origin.dtype = dtype;
    }
  if (elements.contains(DType::kF8E4M3)) origin.dtype = DType::kF8E4M3;
  for (const auto& pair : match.pairs)
    if (const DType dtype = files.find(pair.source)->dtype; dtype != origin.dtype)
      origin.dtypes[pair.tensor->name] = dtype;
}

// A decoder that is stored must be the embedding; padding must be what an export writes.
void check_copies(const models::LayoutMatch& match, ModelSource::Impl& impl, Origin& origin) {
  const TensorRef* embedding = nullptr;
  for (const auto& pair : match.pairs) {
    const TensorRef& tensor = *impl.files->find(pair.source);
    if (pair.tensor->native == "embedding.weight" && !pair.tensor->tied) embedding = &tensor;
    if (pair.tensor->tied) {
      origin.has_decoder = true;
      const bool equal = embedding->dtype == tensor.dtype && embedding->bytes.size() == tensor.bytes.size() &&
                         std::memcmp(embedding->bytes.data(), tensor.bytes.data(), tensor.bytes.size()) == 0;
      if (!equal)
        fail<CheckpointError>("{}: '{}' differs from the token embedding; an untied decoder is not supported",
                              impl.path, tensor.name);
    } else if (pair.tensor->rows.kind == models::RowMap::Kind::kPadded && tensor.shape[0] > models::kVocabSize) {
      std::vector<float> native(
          static_cast<size_t>(element_count(tensor.shape) / tensor.shape[0] * models::kVocabSize));
      copy_into_native(tensor, pair.tensor->rows, 1.0f, native);
      const std::vector<std::byte> again = foreign_bytes(*pair.tensor, tensor.dtype, native);
      if (std::memcmp(again.data(), tensor.bytes.data(), again.size()) != 0)
        impl.report.notes.push_back(
            fmt::format("the padding rows of {} hold other values than the usual ones; they mean "
                        "nothing and are not kept",
                        tensor.name));
    }
  }
}

// Other .safetensors files beside the model's are carried along as they are, unless that is impossible.
void read_side_files(ModelSource::Impl& impl, Origin& origin) {
  for (const std::string& path : impl.files->side_files()) {
    const std::string name = fs::path(path).filename().string();
    std::string obstacle = is_side_file_name(name) ? "" : "its name is that of a model's file";
    std::optional<checkpoint::SafetensorsFile> file;
    try {
      if (obstacle.empty()) file.emplace(path);
    } catch (const CheckpointError& e) {
      obstacle = e.what();
    }
    if (file.has_value())
      for (const TensorRef& tensor : file->tensors())
        if (impl.files->find(tensor.name) != nullptr || origin.side_files.contains(tensor.name))
          obstacle = fmt::format("'{}' stands in another file too", tensor.name);
    if (!obstacle.empty()) {
      impl.report.notes.push_back(fmt::format("{} is no part of the model and is left out: {}", name, obstacle));
      continue;
    }
    impl.report.notes.push_back(
        fmt::format("{} is no part of the model; its {} tensors are passed through", name, file->tensors().size()));
    impl.side_files.push_back(std::move(*file));
    for (const TensorRef& tensor : impl.side_files.back().tensors()) {
      origin.side_files[tensor.name] = name;
      impl.passthrough.push_back(passed_through(tensor));
    }
  }
}

std::shared_ptr<ModelSource::Impl> open_foreign(const std::string& path, const std::string& config_path) {
  auto impl = std::make_shared<ModelSource::Impl>();
  impl->path = path;
  impl->files.emplace(path);
  if (!fs::exists(config_path))
    fail<CheckpointError>("{}: there is no config.json beside it, which says what model this is", path);
  Origin origin;
  origin.config_json = read_text(config_path);
  models::ForeignLayout layout;
  const bool nvidia = has_nvidia_names(*impl->files);
  if (nvidia) {
    const models::NvidiaConfig config = models::nvidia_read_config(origin.config_json, config_path);
    impl->config = config.model;
    origin.variant = nvidia_variant(*impl->files, config.interleaved_qkv);
    origin.format = origin.variant.prefix == "esm" ? Format::kNvidiaOld : Format::kNvidia;
    layout = models::nvidia_layout(impl->config, origin.variant);
  } else {
    impl->config = models::hf_read_config(origin.config_json, config_path);
    origin.format = Format::kHf;
    layout = models::hf_layout(impl->config);
  }
  impl->format = origin.format;
  check_scales_have_weights(*impl->files);
  const models::LayoutMatch match = models::match_layout(
      layout, shapes_of(*impl->files), nvidia ? models::nvidia_canonical_name : models::hf_canonical_name,
      nvidia ? models::nvidia_is_passed_through : models::hf_is_passed_through, path);
  note_dtypes(match, *impl->files, origin);
  check_copies(match, *impl, origin);
  impl->report.used = static_cast<int64_t>(match.pairs.size());
  for (const auto& pair : match.pairs) {
    if (pair.tensor->tied) continue;
    const TensorRef* tensor = impl->files->find(pair.source);
    const bool codes = tensor->dtype == DType::kF8E4M3;
    const float factor = codes ? read_scale(*impl->files, *tensor) : 1.0f;
    impl->parts[pair.tensor->native].push_back({.tensor = tensor, .rows = pair.tensor->rows, .factor = factor});
    impl->report.used += codes;
  }
  for (const std::string& name : match.passed_through) {
    impl->passthrough.push_back(passed_through(*impl->files->find(name)));
    if (const TensorRef* scale = impl->files->find(scale_name(name)))
      impl->passthrough.push_back(passed_through(*scale));
  }
  impl->report.passed_through = match.passed_through;
  find_inv_freq(*impl);
  read_side_files(*impl, origin);
  impl->origin_json = origin_text(origin);
  impl->origin = std::move(origin);
  impl->config.inv_freq = rule_of_inv_freq(impl->inv_freq, impl->config.head_dim());
  return impl;
}

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
  if (const auto best = checkpoint::best_of(checkpoints.complete_steps()); best.has_value())
    return checkpoints.step_path(best->step);
  if (const auto newest = checkpoints.newest_complete(); newest.has_value()) return newest->path();
  fail<CheckpointError>("{}: there is no complete checkpoint in this folder", folder);
}

bool has_step_folders(const std::string& path) { return !checkpoint::CheckpointFolder(path).list().empty(); }

std::shared_ptr<ModelSource::Impl> open_impl(const std::string& path, checkpoint::Verify verify) {
  const fs::path where(path);
  if (!fs::exists(where)) fail<CheckpointError>("{}: no such file or folder", path);
  if (!fs::is_directory(where)) {
    if (where.extension() != ".safetensors")
      fail<CheckpointError>(
          "{}: a folder or a .safetensors file is wanted (pickled .pt and .bin files are not read: save "
          "with safe_serialization=True)",
          path);
    return open_foreign(path, (where.parent_path() / "config.json").string());
  }
  if (fs::exists(where / checkpoint::kManifestName)) return open_native(path, verify);
  if (fs::is_directory(where / "checkpoints"))
    return open_native(best_or_newest((where / "checkpoints").string()), verify);
  if (has_step_folders(path)) return open_native(best_or_newest(path), verify);
  return open_foreign(path, (where / "config.json").string());
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

std::vector<float> ModelSource::Impl::rotary_frequencies() const {
  switch (config.inv_freq) {
    case models::InvFreq::kFp32: return computed_inv_freq(config.head_dim());
    case models::InvFreq::kFp16Rounded: return rounded_to_fp16(computed_inv_freq(config.head_dim()));
    case models::InvFreq::kFile: return inv_freq;
  }
  return {};
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
