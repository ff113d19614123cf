// Writes JSON text: metrics, reports, manifests. (Reading JSON is nlohmann-json's job, in the folders that need it.)
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace esm {

/// Builds one JSON document in a string. Doubles are written with 17 significant digits (they survive a round
/// trip); NaN and infinities become null, since JSON has no word for them. Calls must nest properly; keys come
/// only inside objects. Example:
///   JsonWriter json;
///   json.begin_object().field("step", 7).field("loss", 2.5).end_object();
///   json.text();   // {"step": 7, "loss": 2.5}
class JsonWriter {
 public:
  /// indent 0: everything on one line; otherwise spaces a level.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(std::same_as<bool> auto flag) { return raw(flag ? "true" : "false"); }
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonWriter& value(T number) {
    if constexpr (std::is_signed_v<T>)
      return integer(static_cast<int64_t>(number));
    else
      return unsigned_integer(static_cast<uint64_t>(number));
  }
  /// `text` must be valid JSON; it is taken as it is.
  JsonWriter& raw(std::string_view text);

  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }
  /// An array of plain values.
  template <class T>
  JsonWriter& field(std::string_view name, const std::vector<T>& values) {
    key(name).begin_array();
    for (const auto& v : values) value(v);
    return end_array();
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  void separate();
  void new_line();

  int indent_;
  int depth_ = 0;
  bool first_ = true;
  bool after_key_ = false;
  std::string text_;
};

/// `text` in double quotes, with JSON escapes; bytes that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

/// Bytes of the well-formed UTF-8 sequence at text[i] (i < text.size()), or 0.
size_t utf8_length(std::string_view text, size_t i);

}  // namespace esm
