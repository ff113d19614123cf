// Models in the formats of others: safetensors in Hugging Face or NVIDIA naming, and fair-esm's .pt files.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "models/fair_esm_format.h"
#include "models/hf_format.h"
#include "train/fp8_weights.h"
#include "train/model_source.h"
#include "train/tensor_rows.h"

namespace esm::train {
namespace fs = std::filesystem;
using checkpoint::element_count;
using checkpoint::TensorOut;
using checkpoint::TensorRef;
TensorOut passed_through(const TensorRef& tensor) {
  return {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes, .make = {}};
}

namespace {

std::string read_text(const std::string& path) {
  try {
    return read_text_file(path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
}

// By the names of the file.
using TensorIndex = std::map<std::string, const TensorRef*>;

// Factors of 8-bit weights belong to their weights and are no tensors of the model.
std::vector<models::NamedShape> shapes_of(const TensorIndex& files) {
  std::vector<models::NamedShape> shapes;
  for (const auto& [name, tensor] : files)
    if (!is_scale_name(name)) shapes.push_back({name, tensor->shape});
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
void note_dtypes(const models::LayoutMatch& match, const TensorIndex& files, Origin& origin) {
  std::map<DType, int64_t> elements;
  for (const auto& pair : match.pairs) {
    const TensorRef& tensor = *files.at(pair.source);
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
    if (const DType dtype = files.at(pair.source)->dtype; dtype != origin.dtype)
      origin.dtypes[pair.tensor->name] = dtype;
}

// A decoder that is stored must be the embedding; padding must be what an export writes.
void check_copies(const models::LayoutMatch& match, const TensorIndex& files, ModelSource::Impl& impl, Origin& origin) {
  const TensorRef* embedding = nullptr;
  for (const auto& pair : match.pairs) {
    const TensorRef& tensor = *files.at(pair.source);
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

// What every format has in common.
void take(const models::LayoutMatch& match, const TensorIndex& files, ModelSource::Impl& impl, Origin& origin) {
  note_dtypes(match, files, origin);
  check_copies(match, files, impl, origin);
  impl.report.used += static_cast<int64_t>(match.pairs.size());
  for (const auto& pair : match.pairs) {
    if (pair.tensor->tied) continue;
    const TensorRef* tensor = files.at(pair.source);
    const bool codes = tensor->dtype == DType::kF8E4M3;  // in safetensors only
    const float factor = codes ? read_scale(*impl.files, *tensor) : 1.0f;
    impl.parts[pair.tensor->native].push_back({.tensor = tensor, .rows = pair.tensor->rows, .factor = factor});
    impl.report.used += codes;
  }
  for (const std::string& name : match.passed_through) {
    impl.passthrough.push_back(passed_through(*files.at(name)));
    if (const auto scale = files.find(scale_name(name)); scale != files.end())
      impl.passthrough.push_back(passed_through(*scale->second));
  }
  impl.report.passed_through = match.passed_through;
  find_inv_freq(impl);
}

void finish(Origin origin, ModelSource::Impl& impl) {
  impl.format = origin.format;
  impl.origin_json = origin_text(origin);
  impl.origin = std::move(origin);
  impl.config.inv_freq = rule_of_inv_freq(impl.inv_freq, impl.config.head_dim());
}

}  // namespace

std::shared_ptr<ModelSource::Impl> open_safetensors_model(const std::string& path, const std::string& config_path) {
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
  check_scales_have_weights(*impl->files);
  TensorIndex files;
  for (const TensorRef* tensor : impl->files->tensors()) files[tensor->name] = tensor;
  const models::LayoutMatch match =
      models::match_layout(layout, shapes_of(files), nvidia ? models::nvidia_canonical_name : models::hf_canonical_name,
                           nvidia ? models::nvidia_is_passed_through : models::hf_is_passed_through, path);
  take(match, files, *impl, origin);
  read_side_files(*impl, origin);
  finish(std::move(origin), *impl);
  return impl;
}

// --- fair-esm ----------------------------------------------------------------------------------------------------

namespace {

using checkpoint::Pickle;
using checkpoint::PickledValue;
using Kind = PickledValue::Kind;

std::string keys_of(const Pickle& pickle, const PickledValue& dict) {
  std::string text;
  size_t count = 0;
  for (size_t i = 0; i + 1 < dict.items.size() && count < 6; i += 2, ++count)
    if (const PickledValue& key = pickle.at(dict.items[i]); key.kind == Kind::kText)
      text += (text.empty() ? "" : ", ") + key.text.substr(0, 60);
  return text.empty() ? "none" : text;
}

// The tensors of a file: its "model".
const PickledValue& model_dict(const checkpoint::TorchFile& file) {
  const Pickle& pickle = file.pickle();
  if (pickle.root().kind != Kind::kDict)
    fail<CheckpointError>("{}: no file of fair-esm: it holds no dict", file.path());
  const PickledValue* model = pickle.find(pickle.root(), "model");
  if (model == nullptr || model->kind != Kind::kDict)
    fail<CheckpointError>(
        "{}: no file of fair-esm: it has no tensors under 'model' (found: {}). Of a Hugging Face model, give the "
        "folder with model.safetensors (save_pretrained writes it)",
        file.path(), keys_of(pickle, pickle.root()));
  return *model;
}

// Where a file says what its model is: cfg["model"] (ESM-2), or args (files of fairseq).
class FairEsmSettings {
 public:
  explicit FairEsmSettings(const checkpoint::TorchFile& file) : file_(file) {
    const Pickle& pickle = file.pickle();
    if (const PickledValue* cfg = pickle.find(pickle.root(), "cfg")) settings_ = pickle.find(*cfg, "model");
    if (settings_ == nullptr) settings_ = pickle.find(pickle.root(), "args");
    if (settings_ == nullptr)
      fail<CheckpointError>(
          "{}: it does not say how large its model is: cfg['model'] or args is wanted beside 'model' (found: {})",
          file.path(), keys_of(pickle, pickle.root()));
  }

  models::Esm2Config config() const {
    models::Esm2Config config;
    config.layers = size("encoder_layers", "layers", models::kMaxLayers);
    config.hidden = size("encoder_embed_dim", "embed_dim", models::kMaxHidden);
    config.heads = size("encoder_attention_heads", "attention_heads", models::kMaxHidden);
    if (config.hidden % (2 * config.heads) != 0)
      fail<CheckpointError>("{}: a hidden size of {} with {} heads; a multiple of twice the heads is wanted",
                            file_.path(), config.hidden, config.heads);
    if (find("encoder_ffn_embed_dim", "ffn_embed_dim") != nullptr) {
      const int64_t ffn = size("encoder_ffn_embed_dim", "ffn_embed_dim", models::kMaxFfn);
      config.ffn = ffn == 4 * config.hidden ? 0 : ffn;
    }
    config.token_dropout = flag("token_dropout", true);
    if (flag("emb_layer_norm_before", false))
      fail<CheckpointError>("{}: emb_layer_norm_before is set; ESM-2 has none (is this an ESM-1b model?)",
                            file_.path());
    if (const PickledValue* activation = find("activation_fn", "activation_fn");
        activation != nullptr && activation->kind == Kind::kText && activation->text != "gelu")
      fail<CheckpointError>("{}: activation_fn is '{}'; ESM-2 has gelu", file_.path(), activation->text.substr(0, 60));
    return config;
  }

 private:
  const PickledValue* find(std::string_view name, std::string_view older) const {
    const PickledValue* found = file_.pickle().find(*settings_, name);
    return found != nullptr ? found : file_.pickle().find(*settings_, older);
  }
  int64_t size(std::string_view name, std::string_view older, int64_t limit) const {
    const PickledValue* found = find(name, older);
    if (found == nullptr || found->kind != Kind::kInteger || found->number < 1 || found->number > limit)
      fail<CheckpointError>("{}: its settings say no {} (a number from 1 to {} is wanted)", file_.path(), name, limit);
    return found->number;
  }
  bool flag(std::string_view name, bool fallback) const {
    const PickledValue* found = find(name, name);
    if (found == nullptr || found->kind == Kind::kNone) return fallback;
    if (found->kind != Kind::kBool && found->kind != Kind::kInteger)
      fail<CheckpointError>("{}: its setting {} is neither true nor false", file_.path(), name);
    return found->number != 0;
  }

  const checkpoint::TorchFile& file_;
  const PickledValue* settings_ = nullptr;
};

// What a checkpoint keeps of the settings.
std::string settings_json(const models::Esm2Config& config) {
  JsonWriter json(1);
  json.begin_object();
  json.field("encoder_layers", config.layers).field("encoder_embed_dim", config.hidden);
  json.field("encoder_attention_heads", config.heads).field("encoder_ffn_embed_dim", config.ffn_size());
  json.field("token_dropout", config.token_dropout);
  return json.end_object().text();
}

void add_tensors(checkpoint::TorchFile& file, const PickledValue& dict, TensorIndex& index) {
  file.load(dict);
  for (const TensorRef& tensor : file.tensors())
    if (!index.emplace(tensor.name, &tensor).second)
      fail<CheckpointError>("{}: '{}' stands in the model's file too", file.path(), tensor.name);
}

bool has_contact_head(const TensorIndex& index) {
  return std::ranges::any_of(index, [](const auto& entry) {
    return models::fair_esm_canonical_name(entry.first).starts_with("contact_head.");
  });
}

}  // namespace

std::shared_ptr<ModelSource::Impl> open_fair_esm_model(const std::string& path) {
  auto impl = std::make_shared<ModelSource::Impl>();
  impl->path = path;
  checkpoint::TorchFile& file = impl->torch_files.emplace_back(path);
  const PickledValue& model = model_dict(file);
  impl->config = FairEsmSettings(file).config();
  TensorIndex index;
  add_tensors(file, model, index);
  // The published models have their contact head in a file of its own, which fair-esm looks for too.
  const fs::path where(path);
  const std::string beside = where.stem().string() + "-contact-regression.pt";
  if (!has_contact_head(index)) {
    const std::string contact_path = (where.parent_path() / beside).string();
    if (fs::exists(contact_path)) {
      checkpoint::TorchFile& contact = impl->torch_files.emplace_back(contact_path);
      add_tensors(contact, model_dict(contact), index);
      impl->report.notes.push_back(fmt::format("the contact head comes from {}", beside));
    } else {
      impl->report.notes.push_back(fmt::format("no contact head: it would stand in {}, which is not there", beside));
    }
  }
  Origin origin;
  origin.format = Format::kFairEsm;
  origin.config_json = settings_json(impl->config);
  const models::ForeignLayout layout = models::fair_esm_layout(impl->config);
  const models::LayoutMatch match = models::match_layout(layout, shapes_of(index), models::fair_esm_canonical_name,
                                                         models::fair_esm_is_passed_through, path);
  take(match, index, *impl, origin);
  finish(std::move(origin), *impl);
  return impl;
}

}  // namespace esm::train
