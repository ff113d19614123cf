#include "models/config_json.h"

#include "base/check.h"

namespace esm::models {

ConfigJson::ConfigJson(const std::string& text, std::string where)
    : root_(Json::parse(text, nullptr, false)), where_(std::move(where)) {
  if (!root_.is_object()) fail<CheckpointError>("{}: not a JSON object", where_);
}

void ConfigJson::wrong_type(const char* key, const char* expected) const {
  fail<CheckpointError>("{}: '{}' is {}, {} is wanted", where_, key, root_[key].dump().substr(0, 60), expected);
}

void ConfigJson::demand(bool ok, const char* key, std::string_view reason) const {
  if (ok) return;
  const std::string found = root_.contains(key) ? root_[key].dump().substr(0, 60) : "absent";
  fail<CheckpointError>("{}: '{}' is {}; {}", where_, key, found, reason);
}

int64_t ConfigJson::integer(const char* key, int64_t fallback) const {
  if (!has(key)) return fallback;
  if (!root_[key].is_number_integer()) wrong_type(key, "an integer");
  return root_[key].get<int64_t>();
}

int64_t ConfigJson::required_integer(const char* key) const {
  if (!has(key)) fail<CheckpointError>("{}: '{}' is missing", where_, key);
  const int64_t value = integer(key, 0);
  // Far above any model, far below an overflow of products.
  demand(value >= 1 && value <= 1'000'000, key, "a number from 1 to 1000000 is wanted");
  return value;
}

double ConfigJson::number(const char* key, double fallback) const {
  if (!has(key)) return fallback;
  if (!root_[key].is_number()) wrong_type(key, "a number");
  return root_[key].get<double>();
}

bool ConfigJson::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!root_[key].is_boolean()) wrong_type(key, "true or false");
  return root_[key].get<bool>();
}

std::string ConfigJson::text(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!root_[key].is_string()) wrong_type(key, "text");
  return root_[key].get<std::string>();
}

Esm2Config ConfigJson::common() const {
  Esm2Config config;
  config.layers = required_integer("num_hidden_layers");
  config.hidden = required_integer("hidden_size");
  config.heads = required_integer("num_attention_heads");
  const int64_t ffn = required_integer("intermediate_size");
  config.ffn = ffn == 4 * config.hidden ? 0 : ffn;
  config.layer_norm_eps = number("layer_norm_eps", 1e-5);
  demand(config.layer_norm_eps > 0, "layer_norm_eps", "a number above 0 is wanted");
  config.init_std = number("initializer_range", 0.02);
  demand(config.init_std > 0, "initializer_range", "a number above 0 is wanted");
  config.token_dropout = flag("token_dropout", true);
  demand(config.hidden % (2 * config.heads) == 0, "hidden_size", "a multiple of 2 * num_attention_heads is wanted");

  demand(integer("vocab_size", kVocabSize) == kVocabSize, "vocab_size", "ESM-2 has 33 tokens");
  demand(integer("mask_token_id", 32) == 32, "mask_token_id", "in ESM-2 it is 32");
  demand(integer("pad_token_id", 1) == 1, "pad_token_id", "in ESM-2 it is 1");
  demand(text("position_embedding_type", "absolute") == "rotary", "position_embedding_type",
         "ESM-2 has rotary positions (is this an ESM-1 model?)");
  demand(!flag("emb_layer_norm_before", false), "emb_layer_norm_before", "ESM-2 has none (is this an ESM-1b model?)");
  demand(!flag("is_folding_model", false), "is_folding_model", "ESMFold is not supported");
  demand(!flag("is_decoder", false), "is_decoder", "only encoders are supported");
  demand(!flag("add_cross_attention", false), "add_cross_attention", "only encoders are supported");
  demand(flag("tie_word_embeddings", true), "tie_word_embeddings", "an untied decoder is not supported");
  demand(number("rope_theta", 10000.0) == 10000.0, "rope_theta", "ESM-2 has 10000");
  return config;
}

Json common_config_json(const Esm2Config& config, std::string_view dtype, const std::string& source) {
  Json root = source.empty() ? Json::object() : Json::parse(source, nullptr, false);
  ESM_CHECK(root.is_object(), "the config.json kept from the import is not JSON");
  root["vocab_size"] = kVocabSize;
  root["hidden_size"] = config.hidden;
  root["num_hidden_layers"] = config.layers;
  root["num_attention_heads"] = config.heads;
  root["intermediate_size"] = config.ffn_size();
  root["layer_norm_eps"] = config.layer_norm_eps;
  root["initializer_range"] = config.init_std;
  root["token_dropout"] = config.token_dropout;
  root["position_embedding_type"] = "rotary";
  root["emb_layer_norm_before"] = false;
  root["mask_token_id"] = 32;
  root["pad_token_id"] = 1;
  const auto set_default = [&](const char* key, Json value) {
    if (!root.contains(key)) root[key] = std::move(value);
  };
  set_default("max_position_embeddings", 1026);
  set_default("hidden_dropout_prob", 0.0);
  set_default("attention_probs_dropout_prob", 0.0);
  // Older versions of transformers say torch_dtype, newer ones dtype; the old name is read by both.
  const char* dtype_key = root.contains("dtype") ? "dtype" : "torch_dtype";
  root[dtype_key] = dtype == "F16" ? "float16" : dtype == "BF16" ? "bfloat16" : "float32";
  return root;
}

}  // namespace esm::models
