#include "models/config_json.h"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/check.h"
#include "base/json_limits.h"

namespace esm::models {
using Json = nlohmann::ordered_json;

struct ConfigJson::Impl {
  Json root;
  std::string where;

  std::string found(const char* key) const { return root.contains(key) ? root[key].dump().substr(0, 60) : "absent"; }
};

ConfigJson::ConfigJson(const std::string& text, std::string where) : impl_(new Impl{.where = std::move(where)}) {
  if (const std::string excess = json_excess(text, 10'000); !excess.empty())
    fail<CheckpointError>("{}: {}", impl_->where, excess);
  impl_->root = Json::parse(text, nullptr, false);
  if (!impl_->root.is_object()) fail<CheckpointError>("{}: not a JSON object", impl_->where);
}
ConfigJson::~ConfigJson() = default;
ConfigJson::ConfigJson(ConfigJson&&) noexcept = default;

void ConfigJson::wrong_type(const char* key, const char* expected) const {
  fail<CheckpointError>("{}: '{}' is {}, {} is wanted", impl_->where, key, impl_->found(key), expected);
}

void ConfigJson::demand(bool ok, const char* key, std::string_view reason) const {
  if (!ok) fail<CheckpointError>("{}: '{}' is {}; {}", impl_->where, key, impl_->found(key), reason);
}

bool ConfigJson::has(const char* key) const { return impl_->root.contains(key) && !impl_->root[key].is_null(); }

int64_t ConfigJson::integer(const char* key, int64_t fallback) const {
  if (!has(key)) return fallback;
  const std::optional<int64_t> value = json_integer(impl_->root[key]);
  if (!value.has_value()) wrong_type(key, "an integer");
  return *value;
}

int64_t ConfigJson::size(const char* key, int64_t limit) const {
  if (!has(key)) fail<CheckpointError>("{}: '{}' is missing", impl_->where, key);
  const int64_t value = integer(key, 0);
  demand(value >= 1 && value <= limit, key, fmt::format("a number from 1 to {} is wanted", limit));
  return value;
}

double ConfigJson::number(const char* key, double fallback) const {
  if (!has(key)) return fallback;
  if (!impl_->root[key].is_number()) wrong_type(key, "a number");
  return impl_->root[key].get<double>();
}

bool ConfigJson::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!impl_->root[key].is_boolean()) wrong_type(key, "true or false");
  return impl_->root[key].get<bool>();
}

std::string ConfigJson::text(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!impl_->root[key].is_string()) wrong_type(key, "text");
  return impl_->root[key].get<std::string>();
}

void ConfigJson::set(const char* key, const Value& value) {
  std::visit(
      [&](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, Raw>)
          impl_->root[key] = Json::parse(v.text);
        else
          impl_->root[key] = v;
      },
      value);
}

void ConfigJson::remove(const char* key) { impl_->root.erase(key); }

void ConfigJson::set_default(const char* key, const Value& value) {
  if (!impl_->root.contains(key)) set(key, value);
}

std::string ConfigJson::dump() const { return impl_->root.dump(2) + "\n"; }

Esm2Config read_common(const ConfigJson& json) {
  Esm2Config config;
  config.layers = json.size("num_hidden_layers", kMaxLayers);
  config.hidden = json.size("hidden_size", kMaxHidden);
  config.heads = json.size("num_attention_heads", kMaxHidden);
  const int64_t ffn = json.size("intermediate_size", kMaxFfn);
  config.ffn = ffn == 4 * config.hidden ? 0 : ffn;
  config.layer_norm_eps = json.number("layer_norm_eps", 1e-5);
  json.demand(config.layer_norm_eps > 0, "layer_norm_eps", "a number above 0 is wanted");
  config.init_std = json.number("initializer_range", 0.02);
  json.demand(config.init_std > 0, "initializer_range", "a number above 0 is wanted");
  config.token_dropout = json.flag("token_dropout", true);
  json.demand(config.hidden % (2 * config.heads) == 0, "hidden_size",
              "a multiple of 2 * num_attention_heads is wanted");

  json.demand(json.integer("vocab_size", kVocabSize) == kVocabSize, "vocab_size", "ESM-2 has 33 tokens");
  json.demand(json.integer("mask_token_id", 32) == 32, "mask_token_id", "in ESM-2 it is 32");
  json.demand(json.integer("pad_token_id", 1) == 1, "pad_token_id", "in ESM-2 it is 1");
  json.demand(json.text("position_embedding_type", "absolute") == "rotary", "position_embedding_type",
              "ESM-2 has rotary positions (is this an ESM-1 model?)");
  json.demand(!json.flag("emb_layer_norm_before", false), "emb_layer_norm_before",
              "ESM-2 has none (is this an ESM-1b model?)");
  json.demand(!json.flag("is_folding_model", false), "is_folding_model", "ESMFold is not supported");
  json.demand(!json.flag("is_decoder", false), "is_decoder", "only encoders are supported");
  json.demand(!json.flag("add_cross_attention", false), "add_cross_attention", "only encoders are supported");
  json.demand(json.flag("tie_word_embeddings", true), "tie_word_embeddings", "an untied decoder is not supported");
  json.demand(json.number("rope_theta", 10000.0) == 10000.0, "rope_theta", "ESM-2 has 10000");
  return config;
}

ConfigJson write_common(const Esm2Config& config, std::string_view dtype, const std::string& source) {
  ConfigJson json(source.empty() ? "{}" : source, "config.json kept from the import");
  json.set("vocab_size", kVocabSize);
  json.set("hidden_size", config.hidden);
  json.set("num_hidden_layers", config.layers);
  json.set("num_attention_heads", config.heads);
  json.set("intermediate_size", config.ffn_size());
  json.set("layer_norm_eps", config.layer_norm_eps);
  json.set("initializer_range", config.init_std);
  json.set("token_dropout", config.token_dropout);
  json.set("position_embedding_type", std::string("rotary"));
  json.set("emb_layer_norm_before", false);
  json.set("mask_token_id", int64_t{32});
  json.set("pad_token_id", int64_t{1});
  json.set_default("max_position_embeddings", int64_t{1026});
  json.set_default("hidden_dropout_prob", 0.0);
  json.set_default("attention_probs_dropout_prob", 0.0);
  // Older versions of transformers say torch_dtype, newer ones dtype; the old name is read by both.
  const std::string name = dtype == "F16" ? "float16" : dtype == "BF16" ? "bfloat16" : "float32";
  json.set(json.has("dtype") ? "dtype" : "torch_dtype", name);
  return json;
}

}  // namespace esm::models
