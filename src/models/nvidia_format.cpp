#include "models/nvidia_format.h"

#include "base/check.h"
#include "models/config_json.h"

namespace esm::models {

ForeignLayout nvidia_layout(const Esm2Config& config, const NvidiaVariant& variant) {
  const int64_t h = config.hidden, f = config.ffn_size(), v = variant.vocab_rows;
  const std::string& p = variant.prefix;
  ForeignLayout layout{.format = "NVIDIA", .tensors = {}};
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, const std::string& native,
                       RowMap rows = {}) {
    layout.tensors.push_back({.name = name, .shape = std::move(shape), .native = native, .rows = rows});
  };
  const auto padded = [](RowMap::Pad pad) {
    return RowMap{.kind = RowMap::Kind::kPadded, .native_rows = kVocabSize, .pad = pad};
  };
  const RowMap qkv =
      variant.interleaved_qkv ? RowMap{.kind = RowMap::Kind::kInterleavedQkv, .heads = config.heads} : RowMap{};
  add(p + ".embeddings.word_embeddings.weight", {v, h}, "embedding.weight", padded(RowMap::Pad::kZero));
  for (int64_t n = 0; n < config.layers; ++n) {
    const std::string nv = fmt::format("{}.encoder.layers.{}.", p, n), native = fmt::format("layers.{}.", n);
    const std::string attention = nv + "self_attention.", mlp = nv + "layernorm_mlp.";
    add(attention + "layernorm_qkv.layer_norm_weight", {h}, native + "attention_norm.weight");
    add(attention + "layernorm_qkv.layer_norm_bias", {h}, native + "attention_norm.bias");
    add(attention + "layernorm_qkv.weight", {3 * h, h}, native + "attention.qkv.weight", qkv);
    add(attention + "layernorm_qkv.bias", {3 * h}, native + "attention.qkv.bias", qkv);
    add(attention + "proj.weight", {h, h}, native + "attention.out.weight");
    add(attention + "proj.bias", {h}, native + "attention.out.bias");
    add(mlp + "layer_norm_weight", {h}, native + "ffn_norm.weight");
    add(mlp + "layer_norm_bias", {h}, native + "ffn_norm.bias");
    add(mlp + "fc1_weight", {f, h}, native + "ffn.fc1.weight");
    add(mlp + "fc1_bias", {f}, native + "ffn.fc1.bias");
    add(mlp + "fc2_weight", {h, f}, native + "ffn.fc2.weight");
    add(mlp + "fc2_bias", {h}, native + "ffn.fc2.bias");
  }
  add(p + ".encoder.emb_layer_norm_after.weight", {h}, "final_norm.weight");
  add(p + ".encoder.emb_layer_norm_after.bias", {h}, "final_norm.bias");
  add("lm_head.dense.weight", {h, h}, "head.dense.weight");
  add("lm_head.dense.bias", {h}, "head.dense.bias");
  add("lm_head.decoder.layer_norm_weight", {h}, "head.norm.weight");
  add("lm_head.decoder.layer_norm_bias", {h}, "head.norm.bias");
  add("lm_head.decoder.bias", {v}, "head.bias", padded(RowMap::Pad::kLowest));
  add("lm_head.decoder.weight", {v, h}, "embedding.weight", padded(RowMap::Pad::kZero));
  layout.tensors.back().tied = true;
  return layout;
}

std::string nvidia_canonical_name(std::string_view name) { return std::string(name); }

bool nvidia_is_passed_through(std::string_view name) {
  return name.ends_with("_extra_state") || name.ends_with("rotary_embeddings.inv_freq") ||
         name.ends_with(".embeddings.position_embeddings.weight") || name.ends_with(".embeddings.position_ids") ||
         name.find(".pooler.dense.") != std::string_view::npos;
}

NvidiaConfig nvidia_read_config(const std::string& json_text, const std::string& where) {
  const ConfigJson json(json_text, where);
  json.demand(json.text("model_type", "nv_esm") == "nv_esm", "model_type", "an NVIDIA ESM-2 says nv_esm");
  json.demand(json.text("encoder_activation", "gelu") == "gelu", "encoder_activation",
              "only gelu (TransformerEngine's, the tanh form) is supported");
  NvidiaConfig config{.model = read_common(json), .interleaved_qkv = json.flag("qkv_weight_interleaved", true)};
  config.model.activation = Activation::kGeluTanh;
  return config;
}

std::string nvidia_write_config(const Esm2Config& config, const NvidiaVariant& variant, std::string_view dtype,
                                bool keep_quantization, const std::string& source) {
  ConfigJson json = write_common(config, dtype, source);
  json.set("model_type", std::string("nv_esm"));
  json.set("qkv_weight_interleaved", variant.interleaved_qkv);
  json.set("encoder_activation", std::string("gelu"));
  if (variant.vocab_rows == kVocabSize)
    json.set("padded_vocab_size", nullptr);
  else
    json.set("padded_vocab_size", variant.vocab_rows);
  json.set_default("architectures", ConfigJson::Raw{R"(["NVEsmForMaskedLM"])"});
  // The classes live in esm_nv.py of NVIDIA's repositories, which loading with trust_remote_code wants beside this
  // file.
  if (source.empty())
    json.set_default("auto_map",
                     ConfigJson::Raw{R"({"AutoConfig": "esm_nv.NVEsmConfig", "AutoModel": "esm_nv.NVEsmModel",
                                                 "AutoModelForMaskedLM": "esm_nv.NVEsmForMaskedLM"})"});
  json.set_default("attn_input_format", std::string("bshd"));
  json.set_default("attn_mask_type", std::string("padding"));
  json.set_default("fuse_qkv_params", true);
  json.set_default("micro_batch_size", nullptr);
  json.set_default("max_seq_length", nullptr);
  json.set_default("add_pooling_layer", false);
  json.set_default("layer_precision", nullptr);
  json.set_default("use_quantized_model_init", false);
  if (!keep_quantization) json.remove("quantization_config");
  return json.dump();
}

}  // namespace esm::models
