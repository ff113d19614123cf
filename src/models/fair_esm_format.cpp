#include "models/fair_esm_format.h"

#include <array>

#include "base/check.h"

namespace esm::models {

ForeignLayout fair_esm_layout(const Esm2Config& config) {
  const int64_t h = config.hidden, f = config.ffn_size();
  ForeignLayout layout{.format = "fair-esm", .sizes = "settings", .tensors = {}};
  layout.add("embed_tokens.weight", {kVocabSize, h}, "embedding.weight");
  for (int64_t n = 0; n < config.layers; ++n) {
    const std::string layer = fmt::format("layers.{}.", n);
    layout.add_norm(layer + "self_attn_layer_norm", h, layer + "attention_norm");
    constexpr std::array kParts{"q_proj", "k_proj", "v_proj"};
    for (int64_t part = 0; part < 3; ++part)
      layout.add_linear(layer + "self_attn." + kParts[static_cast<size_t>(part)], h, h, layer + "attention.qkv",
                        {.kind = RowMap::Kind::kSlice, .offset = part * h});
    layout.add_linear(layer + "self_attn.out_proj", h, h, layer + "attention.out");
    layout.add_norm(layer + "final_layer_norm", h, layer + "ffn_norm");
    layout.add_linear(layer + "fc1", f, h, layer + "ffn.fc1");
    layout.add_linear(layer + "fc2", h, f, layer + "ffn.fc2");
  }
  layout.add_norm("emb_layer_norm_after", h, "final_norm");
  layout.add_linear("lm_head.dense", h, h, "head.dense");
  layout.add_norm("lm_head.layer_norm", h, "head.norm");
  layout.add("lm_head.bias", {kVocabSize}, "head.bias");
  layout.add("lm_head.weight", {kVocabSize, h}, "embedding.weight");
  layout.tensors.back().tied = true;
  layout.add("contact_head.regression.weight", {1, config.layers * config.heads}, "contact.weight");
  layout.tensors.back().required = false;
  layout.add("contact_head.regression.bias", {1}, "contact.bias");
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
