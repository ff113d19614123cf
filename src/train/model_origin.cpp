#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/json_writer.h"
#include "train/model_source.h"
#include "train/tensor_rows.h"

namespace esm::train {
using Json = nlohmann::ordered_json;

bool is_side_file_name(const std::string& name) {
  return checkpoint::is_plain_file_name(name) && name.ends_with(".safetensors") && !name.starts_with("model");
}

std::string origin_text(const Origin& origin) {
  JsonWriter json;
  json.begin_object();
  json.field("format", format_name(origin.format));
  json.field("dtype", dtype_name(origin.dtype));
  json.key("dtypes").begin_object();
  for (const auto& [name, dtype] : origin.dtypes) json.field(name, dtype_name(dtype));
  json.end_object();
  json.field("has_decoder", origin.has_decoder);
  json.field("prefix", origin.variant.prefix).field("vocab_rows", origin.variant.vocab_rows);
  json.field("interleaved_qkv", origin.variant.interleaved_qkv);
  json.key("side_files").begin_object();
  for (const auto& [tensor, file] : origin.side_files) json.field(tensor, file);
  json.end_object();
  json.field("config_json", origin.config_json);
  json.end_object();
  return json.text();
}

Origin parse_origin(const std::string& json_text, const std::string& where) {
  const auto parse_type = [&](const std::string& name) {
    DType dtype{};
    if (!parse_dtype(name, dtype) || (!is_weight_dtype(dtype) && dtype != DType::kF8E4M3))
      fail<CheckpointError>("{}: origin: '{}' is no element type of weights", where, name);
    return dtype;
  };
  Origin origin;
  try {
    const Json root = Json::parse(json_text);
    const std::string format = root.at("format").get<std::string>();
    const std::optional<Format> known = parse_format(format);
    if (!known.has_value() || *known == Format::kNative)
      fail<CheckpointError>("{}: origin: '{}' is no format that weights are imported from", where, format);
    origin.format = *known;
    origin.dtype = parse_type(root.at("dtype").get<std::string>());
    for (const auto& [name, dtype] : root.at("dtypes").items())
      origin.dtypes[name] = parse_type(dtype.get<std::string>());
    origin.has_decoder = root.at("has_decoder").get<bool>();
    origin.variant.prefix = root.at("prefix").get<std::string>();
    origin.variant.vocab_rows = json_integer(root.at("vocab_rows")).value_or(0);
    origin.variant.interleaved_qkv = root.at("interleaved_qkv").get<bool>();
    for (const auto& [tensor, file] : root.at("side_files").items())
      origin.side_files[tensor] = file.get<std::string>();
    origin.config_json = root.at("config_json").get<std::string>();
  } catch (const nlohmann::json::exception& e) {
    fail<CheckpointError>("{}: origin: {}", where, e.what());
  }
  // A checkpoint may come from a stranger: no absurd allocation by what it says.
  if (origin.variant.vocab_rows < models::kVocabSize || origin.variant.vocab_rows > 65536)
    fail<CheckpointError>("{}: origin: {} rows are no vocabulary", where, origin.variant.vocab_rows);
  for (const auto& [tensor, file] : origin.side_files)
    if (!is_side_file_name(file)) fail<CheckpointError>("{}: origin: '{}' is no name of a side file", where, file);
  if (!Json::accept(origin.config_json) || !Json::parse(origin.config_json).is_object())
    fail<CheckpointError>("{}: origin: config_json is not a JSON object", where);
  return origin;
}

}  // namespace esm::train
