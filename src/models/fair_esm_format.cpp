#include "models/fair_esm_format.h"

#include <array>

#include "base/check.h"

namespace esm::models {

ForeignLayout fair_esm_layout(const Esm2Config& config) {
  const int64_t h = config.hidden, f = config.ffn_size();
  ForeignLayout layout{.format = "fair-esm", .sizes = "settings", .tensors = {}};
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, const std::string& native,
                       RowMap rows = {}) {
    layout.tensors.push_back({.name = name, .shape = std::move(shape), .native = native, .rows = rows});
  };
  const auto add_norm = [&](const std::string& name, const std::string& native) {
    add(name + ".weight", {h}, native + ".weight");
    add(name + ".bias", {h}, native + ".bias");
  };
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in, const std::string& native,
                              RowMap rows = {}) {
    add(name + ".weight", {out, in}, native + ".weight", rows);
    add(name + ".bias", {out}, native + ".bias", rows);
  };
  add("embed_tokens.weight", {kVocabSize, h}, "embedding.weight");
  for (int64_t n = 0; n < config.layers; ++n) {
    const std::string layer = fmt::format("layers.{}.", n);
    add_norm(layer + "self_attn_layer_norm", layer + "attention_norm");
    constexpr std::array kParts{"q_proj", "k_proj", "v_proj"};
    for (int64_t part = 0; part < 3; ++part)
      add_linear(layer + "self_attn." + kParts[static_cast<size_t>(part)], h, h, layer + "attention.qkv",
                 {.kind = RowMap::Kind::kSlice, .offset = part * h});
    add_linear(layer + "self_attn.out_proj", h, h, layer + "attention.out");
    add_norm(layer + "final_layer_norm", layer + "ffn_norm");
    add_linear(layer + "fc1", f, h, layer + "ffn.fc1");
    add_linear(layer + "fc2", h, f, layer + "ffn.fc2");
  }
  add_norm("emb_layer_norm_after", "final_norm");
  add_linear("lm_head.dense", h, h, "head.dense");
  add_norm("lm_head.layer_norm", "head.norm");
  add("lm_head.bias", {kVocabSize}, "head.bias");
  add("lm_head.weight", {kVocabSize, h}, "embedding.weight");
  layout.tensors.back().tied = true;
  add("contact_head.regression.weight", {1, config.layers * config.heads}, "contact.weight");
  layout.tensors.back().required = false;
  add("contact_head.regression.bias", {1}, "contact.bias");
  layout.tensors.back().required = false;
  return layout;
}

std::string fair_esm_canonical_name(std::string_view name) {
  for (const std::string_view prefix : {"encoder.sentence_encoder.", "encoder.", "sentence_encoder."})
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  return std::string(name);
}

bool fair_esm_is_passed_through(std::string_view name) {
  return name.ends_with(".self_attn.rot_emb.inv_freq") || name == "version";
}

}  // namespace esm::models
