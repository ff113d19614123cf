// The part of config.json that Hugging Face and NVIDIA have in common. Private to the *_format.cpp files (it includes
// nlohmann-json).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/esm2_config.h"

namespace esm::models {

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// config.json of a source; members are read with type checks, and every error names file and key.
class ConfigJson {
 public:
  ConfigJson(const std::string& text, std::string where);

  /// Member `key`, or `fallback` when it is absent or null.
  int64_t integer(const char* key, int64_t fallback) const;
  double number(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// As above, but the member must be there.
  int64_t required_integer(const char* key) const;

  /// Throws CheckpointError unless ok: "WHERE: 'key' is VALUE; REASON".
  void demand(bool ok, const char* key, std::string_view reason) const;
  bool has(const char* key) const { return root_.contains(key) && !root_[key].is_null(); }

  /// Sizes and options that both formats spell alike; refuses what neither ESM-2 nor this program has.
  Esm2Config common() const;

 private:
  [[noreturn]] void wrong_type(const char* key, const char* expected) const;

  Json root_;
  std::string where_;
};

/// `source` (or an empty object) with the keys of both formats set from `config`.
Json common_config_json(const Esm2Config& config, std::string_view dtype, const std::string& source);

}  // namespace esm::models
