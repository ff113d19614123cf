#include "models/hf_format.h"

#include <array>

#include "base/check.h"
#include "models/config_json.h"

namespace esm::models {
namespace {

// Weights alone: inputs stay as they are. The linear modules outside the encoder layers are those that are ignored.
constexpr char kQuantizedLayers[] = R"({
  "quant_method": "compressed-tensors",
  "format": "float-quantized",
  "quantization_status": "compressed",
  "config_groups": {
    "group_0": {
      "targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true, "dynamic": false},
      "input_activations": null,
      "output_activations": null
    }
  },
  "ignore": ["re:.*lm_head.*", "re:.*contact_head.*", "re:.*pooler.*"]
})";

}  // namespace

ForeignLayout hf_layout(const Esm2Config& config) {
  const int64_t h = config.hidden, f = config.ffn_size();
  ForeignLayout layout{.format = "Hugging Face", .tensors = {}};
  layout.add("esm.embeddings.word_embeddings.weight", {kVocabSize, h}, "embedding.weight");
  for (int64_t n = 0; n < config.layers; ++n) {
    const std::string hf = fmt::format("esm.encoder.layer.{}.", n), native = fmt::format("layers.{}.", n);
    layout.add_norm(hf + "attention.LayerNorm", h, native + "attention_norm");
    constexpr std::array kParts{"query", "key", "value"};
    for (int64_t part = 0; part < 3; ++part)
      layout.add_linear(hf + "attention.self." + kParts[static_cast<size_t>(part)], h, h, native + "attention.qkv",
                        {.kind = RowMap::Kind::kSlice, .offset = part * h});
    layout.add_linear(hf + "attention.output.dense", h, h, native + "attention.out");
    layout.add_norm(hf + "LayerNorm", h, native + "ffn_norm");
    layout.add_linear(hf + "intermediate.dense", f, h, native + "ffn.fc1");
    layout.add_linear(hf + "output.dense", h, f, native + "ffn.fc2");
  }
  layout.add_norm("esm.encoder.emb_layer_norm_after", h, "final_norm");
  layout.add_linear("lm_head.dense", h, h, "head.dense");
  layout.add_norm("lm_head.layer_norm", h, "head.norm");
  layout.add("lm_head.bias", {kVocabSize}, "head.bias");
  layout.add("lm_head.decoder.weight", {kVocabSize, h}, "embedding.weight");
  layout.tensors.back().tied = true;
  layout.add("esm.contact_head.regression.weight", {1, config.layers * config.heads}, "contact.weight");
  layout.tensors.back().required = false;
  layout.add("esm.contact_head.regression.bias", {1}, "contact.bias");
  layout.tensors.back().required = false;
  return layout;
}

std::string hf_canonical_name(std::string_view name) {
  const auto stem_is_norm = [&](size_t suffix) {
    const std::string_view stem = name.substr(0, name.size() - suffix);
    return stem.ends_with("LayerNorm") || stem.ends_with("layer_norm") || stem.ends_with("emb_layer_norm_after");
  };
  if (name.ends_with(".gamma") && stem_is_norm(6)) return std::string(name.substr(0, name.size() - 6)) + ".weight";
  if (name.ends_with(".beta") && stem_is_norm(5)) return std::string(name.substr(0, name.size() - 5)) + ".bias";
  return std::string(name);
}

bool hf_is_passed_through(std::string_view name) {
  return name == "esm.embeddings.position_embeddings.weight" || name == "esm.embeddings.position_ids" ||
         name.starts_with("esm.pooler.dense.") ||
         (name.starts_with("esm.encoder.") && name.ends_with("rotary_embeddings.inv_freq"));
}

Esm2Config hf_read_config(const std::string& json_text, const std::string& where) {
  const ConfigJson json(json_text, where);
  json.demand(json.text("model_type", "esm") == "esm", "model_type", "a Hugging Face ESM-2 says esm");
  json.demand(json.text("hidden_act", "gelu") == "gelu", "hidden_act", "ESM-2 has gelu");
  return read_common(json);
}

std::string hf_write_config(const Esm2Config& config, std::string_view dtype, Quantization quantization,
                            const std::string& source) {
  ConfigJson json = write_common(config, dtype, source);
  json.set("model_type", std::string("esm"));
  json.set_default("architectures", ConfigJson::Raw{R"(["EsmForMaskedLM"])"});
  json.set_default("vocab_list", nullptr);
  json.set_default("is_folding_model", false);
  json.set_default("esmfold_config", nullptr);
  json.set_default("tie_word_embeddings", true);
  json.set_default("use_cache", true);
  switch (quantization) {
    case Quantization::kNone: json.remove("quantization_config"); break;
    case Quantization::kAsInSource: json.set_default("quantization_config", ConfigJson::Raw{kQuantizedLayers}); break;
    case Quantization::kLayerMatrices: json.set("quantization_config", ConfigJson::Raw{kQuantizedLayers}); break;
  }
  return json.dump();
}

std::map<std::string, std::string> hf_tokenizer_files() {
  constexpr std::array kTokens{"<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E",        "R",
                               "T",     "I",     "D",     "P",     "K", "Q", "N", "F", "Y", "M",        "H",
                               "W",     "C",     "X",     "B",     "U", "Z", "O", ".", "-", "<null_1>", "<mask>"};
  static_assert(kTokens.size() == kVocabSize);
  std::string vocabulary;
  for (const char* token : kTokens) vocabulary += std::string(vocabulary.empty() ? "" : "\n") + token;
  const std::string special = R"({
  "cls_token": "<cls>",
  "eos_token": "<eos>",
  "mask_token": "<mask>",
  "pad_token": "<pad>",
  "unk_token": "<unk>"
})";
  ConfigJson tokenizer(special, "tokenizer_config.json");
  tokenizer.set("tokenizer_class", std::string("EsmTokenizer"));
  tokenizer.set("do_lower_case", false);
  tokenizer.set("clean_up_tokenization_spaces", false);
  tokenizer.set("model_max_length", int64_t{1024});
  return {{"vocab.txt", vocabulary},
          {"special_tokens_map.json", special + "\n"},
          {"tokenizer_config.json", tokenizer.dump()}};
}

}  // namespace esm::models
