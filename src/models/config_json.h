// config.json of Hugging Face and NVIDIA folders: the part that both have in common.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "models/esm2_config.h"

namespace esm::models {

/// A JSON object that keeps the order of its keys and knows its file. Reading checks types; every error is a
/// CheckpointError that names file and key.
class ConfigJson {
 public:
  /// `text` must be a JSON object.
  ConfigJson(const std::string& text, std::string where);
  ~ConfigJson();
  ConfigJson(ConfigJson&&) noexcept;

  bool has(const char* key) const;  // there, and not null
  /// Member `key`, or `fallback` when it is absent or null.
  int64_t integer(const char* key, int64_t fallback) const;
  double number(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// As integer(), but the member must be there, from 1 to `limit`.
  int64_t size(const char* key, int64_t limit) const;
  /// Throws unless ok: "WHERE: 'key' is VALUE; REASON".
  void demand(bool ok, const char* key, std::string_view reason) const;

  /// JSON text as a value.
  struct Raw {
    std::string text;
  };
  using Value = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Raw>;
  void set(const char* key, const Value& value);
  void remove(const char* key);
  /// Only when the key is absent.
  void set_default(const char* key, const Value& value);
  /// Indented, with a newline at the end.
  std::string dump() const;

 private:
  [[noreturn]] void wrong_type(const char* key, const char* expected) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Sizes and options that both formats spell alike; refuses what neither ESM-2 nor this program has.
Esm2Config read_common(const ConfigJson& json);

/// `source` (a config.json that is kept, or "") with the keys of both formats set from `config`. dtype: "F32", "F16" or
/// "BF16".
ConfigJson write_common(const Esm2Config& config, std::string_view dtype, const std::string& source);

}  // namespace esm::models
