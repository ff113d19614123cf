#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/units.h"
#include "checkpoint/writer.h"
#include "config/config.h"
#include "models/hf_format.h"
#include "models/nvidia_format.h"
#include "train/fp8_weights.h"
#include "train/model_io.h"
#include "train/model_source.h"
#include "train/new_folder.h"
#include "train/tensor_rows.h"

namespace esm::train {
using checkpoint::TensorOut;
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void write_native(const ModelSource& source, const ModelSource::Impl& impl, const ExportOptions& options,
                  NewFolder& folder, ExportResult& result) {
  checkpoint::SaveRequest request;
  request.manifest.step = impl.step;
  request.manifest.model_kind = "esm2";
  request.manifest.model_yaml = config::to_yaml(impl.config);
  request.manifest.config_yaml = impl.config_yaml;
  request.manifest.origin_json = impl.origin_json;
  request.manifest.versions = options.versions;
  for (const ModelTensor& tensor : impl.tensors)
    request.parameters.push_back({.name = tensor.name,
                                  .dtype = DType::kF32,
                                  .shape = tensor.shape,
                                  .bytes = {},
                                  .make = [&source, name = tensor.name] { return bytes_of(source.read(name)); }});
  request.passthrough = impl.passthrough;
  const checkpoint::Manifest manifest =
      checkpoint::write_checkpoint(folder.files(), folder.temporary(), request, options.max_file_bytes);
  result.tensors = static_cast<int64_t>(manifest.tensors.size());
  for (const checkpoint::FileEntry& file : manifest.files) {
    result.bytes += file.bytes;
    result.files.push_back(file.name);
  }
}

// One file, or shards with an index, named as transformers names them.
void write_shards(const std::vector<TensorOut>& tensors, int64_t max_file_bytes, NewFolder& folder,
                  ExportResult& result) {
  const checkpoint::ShardPlan plan = checkpoint::plan_shards(tensors, max_file_bytes);
  JsonWriter weight_map(1);
  weight_map.begin_object();
  int64_t total = 0;
  for (size_t file = 0; file < plan.files; ++file) {
    const std::string name =
        plan.files == 1 ? "model.safetensors" : fmt::format("model-{:05d}-of-{:05d}.safetensors", file + 1, plan.files);
    std::vector<TensorOut> shard;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (plan.file_of[i] != file) continue;
      shard.push_back(tensors[i]);
      total += tensors[i].byte_count();
      weight_map.field(tensors[i].name, name);
    }
    result.bytes += checkpoint::write_safetensors(folder.files(), folder.file(name), shard, {{"format", "pt"}}).bytes;
    result.files.push_back(name);
  }
  weight_map.end_object();
  if (plan.files == 1) return;
  JsonWriter index(1);
  index.begin_object().key("metadata").begin_object().field("total_size", total).end_object();
  index.key("weight_map").raw(weight_map.text()).end_object();
  checkpoint::write_text(folder.files(), folder.file("model.safetensors.index.json"), index.text() + "\n");
  result.files.emplace_back("model.safetensors.index.json");
}

void note_differences(const ModelSource::Impl& impl, bool hf, ExportResult& result) {
  const bool tanh = impl.config.activation == models::Activation::kGeluTanh;
  if (hf == tanh)
    result.notes.push_back(fmt::format("the model has activation {}, {} computes {}: its outputs will differ slightly",
                                       tanh ? "gelu_tanh" : "gelu_erf",
                                       hf ? "Hugging Face's EsmForMaskedLM" : "NVIDIA's NVEsmForMaskedLM",
                                       tanh ? "gelu_erf" : "gelu_tanh"));
  if (!hf && impl.config.inv_freq != models::InvFreq::kFp32)
    result.notes.push_back("NVIDIA's NVEsmForMaskedLM computes its rotary frequencies in FP32; this model has others");
}

// One copy a layer, as in the published files; without them transformers says that they are missing.
void add_inv_freq(const ModelSource::Impl& impl, std::vector<TensorOut>& tensors) {
  for (int64_t n = 0; n < impl.config.layers; ++n)
    tensors.push_back({.name = fmt::format("esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq", n),
                       .dtype = DType::kF32,
                       .shape = {impl.config.head_dim() / 2},
                       .bytes = {},
                       .make = [&impl] { return bytes_of(impl.rotary_frequencies()); }});
}

// Weights of 8 bits on their way out. Exponents are found once for all foreign tensors of a native one.
struct Codes {
  std::map<std::string, int> exponents;  // by native name
  RoundingCount count;

  int exponent_of(const ModelSource& source, const models::ForeignTensor& tensor) {
    const auto it = exponents.find(tensor.native);
    if (it != exponents.end()) return it->second;
    return exponents[tensor.native] =
               e4m3_exponent(source.read(tensor.native), fmt::format("{}: '{}'", source.path(), tensor.native));
  }
};

// Codes and factor of one tensor.
void add_codes(const ModelSource& source, const models::ForeignTensor& tensor, Codes& codes,
               std::vector<TensorOut>& out) {
  out.push_back({.name = tensor.name,
                 .dtype = DType::kF8E4M3,
                 .shape = tensor.shape,
                 .bytes = {},
                 .make = [&source, &tensor, &codes] {
                   const int exponent = codes.exponent_of(source, tensor);
                   return foreign_codes(tensor, exponent, source.read(tensor.native), codes.count);
                 }});
  out.push_back({.name = scale_name(tensor.name),
                 .dtype = DType::kF32,
                 .shape = {1},
                 .bytes = {},
                 .make = [&source, &tensor, &codes] {
                   return bytes_of({std::ldexp(1.0f, -codes.exponent_of(source, tensor))});
                 }});
}

void note_rounding(const Codes& codes, ExportResult& result) {
  const RoundingCount& count = codes.count;
  if (count.values == 0) return;
  if (count.rounded == 0) {
    result.notes.push_back(
        fmt::format("the {} weights of 8 bits are exactly those of the source", with_thousands(count.values)));
    return;
  }
  result.notes.push_back(
      fmt::format("{} of {} weights were rounded to 8 bits (E4M3: 4 significant bits, one power of two for each "
                  "matrix), {} of them to 0",
                  with_thousands(count.rounded), with_thousands(count.values), with_thousands(count.zeroed)));
}

struct ForeignContent {
  std::vector<TensorOut> model;
  std::map<std::string, std::vector<TensorOut>> beside;  // by file
  DType embedding_dtype = DType::kF32;
};

// Everything that goes into the folder; what cannot is named in result.left_out. `layout` and `codes` must outlive the
// content. origin: of an import from the format that is written, else null.
ForeignContent foreign_content(const ModelSource& source, const models::ForeignLayout& layout, const Origin* origin,
                               const ExportOptions& options, Codes& codes, ExportResult& result) {
  const ModelSource::Impl& impl = source.impl();
  const auto dtype_of = [&](const models::ForeignTensor& tensor) {
    const bool as_imported = !options.dtype.has_value() && origin != nullptr && impl.config_yaml.empty();
    DType dtype = result.dtype;
    if (as_imported)
      if (const auto it = origin->dtypes.find(tensor.name); it != origin->dtypes.end()) dtype = it->second;
    const bool may_be_codes = as_imported ? may_have_8_bits(tensor) : is_layer_matrix(tensor);
    return dtype == DType::kF8E4M3 && !may_be_codes ? DType::kF32 : dtype;
  };
  ForeignContent content;
  std::set<std::string> written;
  for (const models::ForeignTensor& tensor : layout.tensors) {
    if (!source.has(tensor.native) || (tensor.tied && (origin == nullptr || !origin->has_decoder))) continue;
    written.insert(tensor.native);
    const DType dtype = dtype_of(tensor);
    if (tensor.native == "embedding.weight") content.embedding_dtype = dtype;
    if (dtype == DType::kF8E4M3) {
      add_codes(source, tensor, codes, content.model);
      continue;
    }
    content.model.push_back(
        {.name = tensor.name, .dtype = dtype, .shape = tensor.shape, .bytes = {}, .make = [&source, &tensor, dtype] {
           return foreign_bytes(tensor, dtype, source.read(tensor.native));
         }});
  }
  for (const ModelTensor& tensor : source.tensors())
    if (!written.contains(tensor.name)) result.left_out.push_back(tensor.name);
  for (const TensorOut& tensor : impl.passthrough) {
    const std::string file = impl.side_file_of(tensor.name);
    if (!file.empty())
      content.beside[file].push_back(tensor);
    else if (origin != nullptr)
      content.model.push_back(tensor);
    else if (options.format != Format::kHf || !is_inv_freq_name(tensor.name))  // written under its own names
      result.left_out.push_back(tensor.name);
  }
  if (origin == nullptr) {
    for (const auto& [file, tensors] : content.beside) result.left_out.push_back(file);
    content.beside.clear();
  }
  return content;
}

bool has_inv_freq(const std::vector<TensorOut>& tensors) {
  return std::ranges::any_of(tensors,
                             [](const TensorOut& t) { return t.name.ends_with("rotary_embeddings.inv_freq"); });
}

void write_foreign(const ModelSource& source, const ModelSource::Impl& impl, const ExportOptions& options,
                   NewFolder& folder, ExportResult& result) {
  const bool hf = options.format == Format::kHf;
  const Origin* origin = impl.origin.has_value() && impl.origin->format == options.format ? &*impl.origin : nullptr;
  models::NvidiaVariant variant =
      options.format == Format::kNvidiaOld ? models::NvidiaVariant::old_names() : models::NvidiaVariant::new_names();
  if (origin != nullptr && !hf) variant = origin->variant;
  const models::ForeignLayout layout =
      hf ? models::hf_layout(impl.config) : models::nvidia_layout(impl.config, variant);
  result.dtype = options.dtype.value_or(source.dtype());

  Codes codes;
  ForeignContent content = foreign_content(source, layout, origin, options, codes, result);
  const bool wants_inv_freq = origin == nullptr || impl.config.inv_freq != models::InvFreq::kFp32;
  if (hf && wants_inv_freq && !has_inv_freq(content.model)) add_inv_freq(impl, content.model);
  note_differences(impl, hf, result);
  result.tensors = static_cast<int64_t>(content.model.size());
  write_shards(content.model, options.max_file_bytes, folder, result);
  note_rounding(codes, result);
  for (const auto& [name, tensors] : content.beside) {
    result.bytes += checkpoint::write_safetensors(folder.files(), folder.file(name), tensors, {}).bytes;
    result.files.push_back(name);
  }

  std::map<std::string, std::string> texts = models::hf_tokenizer_files();
  const std::string config_json = origin != nullptr ? origin->config_json : "";
  const bool codes_written = result.dtype == DType::kF8E4M3;
  const std::string_view dtype = dtype_name(codes_written ? content.embedding_dtype : result.dtype);
  const bool as_imported = !options.dtype.has_value() && origin != nullptr;
  const auto quantization = !codes_written ? models::Quantization::kNone
                            : as_imported  ? models::Quantization::kAsInSource
                                           : models::Quantization::kLayerMatrices;
  texts["config.json"] =
      hf ? models::hf_write_config(impl.config, dtype, quantization, config_json)
         : models::nvidia_write_config(impl.config, variant, dtype, quantization == models::Quantization::kAsInSource,
                                       config_json);
  for (const auto& [name, text] : texts) {
    checkpoint::write_text(folder.files(), folder.file(name), text);
    result.files.push_back(name);
  }
}

}  // namespace

ExportResult export_model(const ModelSource& source, const ExportOptions& options) {
  const ModelSource::Impl& impl = source.impl();
  const DType dtype = options.dtype.value_or(DType::kF32);
  ESM_CHECK(is_weight_dtype(dtype) || dtype == DType::kF8E4M3, "{} is no type of weights", dtype_name(dtype));
  ESM_CHECK(options.format != Format::kNative || dtype == DType::kF32, "native checkpoints hold F32, not {}",
            dtype_name(dtype));
  ExportResult result;
  NewFolder folder(options.out, options.force, options.should_stop);
  if (options.format == Format::kNative)
    write_native(source, impl, options, folder, result);
  else
    write_foreign(source, impl, options, folder, result);
  folder.commit();
  return result;
}

}  // namespace esm::train
