#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_limits.h"
#include "base/json_writer.h"

namespace esm::checkpoint {
// Keeps the order of keys.
using Json = nlohmann::ordered_json;
namespace {

constexpr std::array kRoles{std::pair{Role::kParameter, std::string_view("parameter")},
                            std::pair{Role::kExpAvg, std::string_view("exp_avg")},
                            std::pair{Role::kExpAvgSq, std::string_view("exp_avg_sq")},
                            std::pair{Role::kExpAvgScale, std::string_view("exp_avg_scale")},
                            std::pair{Role::kExpAvgSqScale, std::string_view("exp_avg_sq_scale")},
                            std::pair{Role::kScaleState, std::string_view("scale_state")},
                            std::pair{Role::kPassThrough, std::string_view("passthrough")}};

// The file ends with its own hash, taken over the text with zeros in the hash's place.
constexpr std::string_view kHashKey = "\"hash\": \"";
constexpr std::string_view kEnd = "\"\n}\n";
constexpr size_t kHashDigits = 32;
constexpr int64_t kMaxMembers = 10'000;  // of one object; a value for every tensor of the largest model is far below

std::string hash_of_text(std::string_view text) {
  std::string copy(text);
  copy.replace(copy.size() - kEnd.size() - kHashDigits, kHashDigits, kHashDigits, '0');
  return hash_hex(copy);
}

void check_hash(std::string_view text, const std::string& where) {
  const size_t tail = kHashKey.size() + kHashDigits + kEnd.size();
  const bool has_tail =
      text.size() > tail && text.ends_with(kEnd) && text.substr(text.size() - tail).starts_with(kHashKey);
  if (!has_tail)
    fail<CheckpointError>("{}: damaged: it does not end with its own hash ({} bytes; cut off?)", where, text.size());
  const std::string_view stored = text.substr(text.size() - kEnd.size() - kHashDigits, kHashDigits);
  const std::string actual = hash_of_text(text);
  if (stored != actual)
    fail<CheckpointError>("{}: damaged: its content has hash {}, it should have {}", where, actual, stored);
}

// Reads members by name and type; every failure names file and member.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) wrong("it", "an object");
  }

  const Json& member(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) fail<CheckpointError>("{}: '{}' is missing", where_, key);
    return *it;
  }
  bool has(const char* key) const { return object_.contains(key); }
  std::string text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) wrong(key, "text");
    return value.get<std::string>();
  }
  int64_t count(const char* key) const { return to_count(member(key), key); }
  uint64_t unsigned_number(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number_unsigned()) wrong(key, "a non-negative integer");
    return value.get<uint64_t>();
  }
  const Json& array(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) wrong(key, "a list");
    return value;
  }
  std::vector<int64_t> counts(const char* key) const {
    std::vector<int64_t> values;
    for (const Json& value : array(key)) values.push_back(to_count(value, key));
    return values;
  }
  std::map<std::string, std::string> texts(const char* key) const {
    const Json& object = member(key);
    if (!object.is_object()) wrong(key, "an object");
    std::map<std::string, std::string> values;
    for (const auto& [name, value] : object.items()) {
      if (!value.is_string()) wrong(key, "text");
      values[name] = value.get<std::string>();
    }
    return values;
  }
  /// JSON that belongs to somebody else, "" when absent.
  std::string foreign(const char* key) const { return has(key) ? object_.at(key).dump() : std::string(); }

  [[noreturn]] void wrong(const char* key, const char* expected) const {
    fail<CheckpointError>("{}: '{}' is not {}", where_, key, expected);
  }
  const std::string& where() const { return where_; }

 private:
  int64_t to_count(const Json& value, const char* key) const {
    const std::optional<int64_t> count = json_integer(value);
    if (!count.has_value() || *count < 0) wrong(key, "a non-negative integer");
    return *count;
  }

  const Json& object_;
  std::string where_;
};

Role parse_role(const std::string& name, const std::string& where) {
  for (const auto& [role, text] : kRoles)
    if (text == name) return role;
  fail<CheckpointError>("{}: '{}' is no role of a tensor", where, name);
}

void write_foreign(JsonWriter& json, const char* key, const std::string& text) {
  if (text.empty()) return;
  const Json parsed = Json::parse(text, nullptr, false);
  ESM_CHECK(!parsed.is_discarded(), "the manifest's '{}' is not JSON: {}", key, text.substr(0, 80));
  json.key(key).raw(parsed.dump());
}

void write_texts(JsonWriter& json, const char* key, const std::map<std::string, std::string>& values) {
  json.key(key).begin_object();
  for (const auto& [name, value] : values) json.field(name, value);
  json.end_object();
}

void read_files(const Reader& root, Manifest& manifest) {
  std::set<std::string> names;
  for (const Json& entry : root.array("files")) {
    const Reader reader(entry, root.where() + ": files");
    FileEntry file{.name = reader.text("name"), .bytes = reader.count("bytes"), .hash = reader.text("xxh3_128")};
    if (!is_plain_file_name(file.name) || file.name == kManifestName)
      fail<CheckpointError>("{}: '{}' is not a plain file name", reader.where(), file.name);
    if (!names.insert(file.name).second) fail<CheckpointError>("{}: '{}' stands twice", reader.where(), file.name);
    manifest.files.push_back(std::move(file));
  }
  std::set<std::pair<Role, std::string>> seen;
  for (const Json& entry : root.array("tensors")) {
    const Reader reader(entry, root.where() + ": tensors");
    TensorEntry tensor{.name = reader.text("name"),
                       .role = parse_role(reader.text("role"), reader.where()),
                       .dtype = DType::kF32,
                       .shape = reader.counts("shape"),
                       .file = reader.text("file")};
    if (!parse_dtype(reader.text("dtype"), tensor.dtype)) reader.wrong("dtype", "a known element type");
    if (!names.contains(tensor.file))
      fail<CheckpointError>("{}: '{}' lies in '{}', which is not listed", reader.where(), tensor.name, tensor.file);
    if (!seen.insert({tensor.role, tensor.name}).second)
      fail<CheckpointError>("{}: {} '{}' stands twice", reader.where(), role_name(tensor.role), tensor.name);
    manifest.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

std::string_view role_name(Role role) {
  for (const auto& [value, text] : kRoles)
    if (value == role) return text;
  return "?";
}

std::string_view name_prefix(Role role) {
  switch (role) {
    case Role::kExpAvg: return "exp_avg/";
    case Role::kExpAvgSq: return "exp_avg_sq/";
    case Role::kExpAvgScale: return "exp_avg_scale/";
    case Role::kExpAvgSqScale: return "exp_avg_sq_scale/";
    case Role::kScaleState: return "scale_state/";
    case Role::kParameter:
    case Role::kPassThrough: return "";
  }
  return "";
}

bool is_plain_file_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 200 && name[0] != '.' && std::all_of(name.begin(), name.end(), plain);
}

std::string step_folder_name(int64_t step) { return fmt::format("step-{:09d}", step); }

std::optional<int64_t> parse_step_folder_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || name.size() > kPrefix.size() + 18) return std::nullopt;
  int64_t step = 0;
  for (const char c : name.substr(kPrefix.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step_folder_name(step) == name ? std::optional(step) : std::nullopt;
}

std::string manifest_text(const Manifest& manifest) {
  JsonWriter json(1);
  json.begin_object();
  json.field("format", "esmtrain checkpoint");
  json.field("format_version", manifest.format_version);
  json.field("step", manifest.step);
  json.field("created", manifest.created);
  if (manifest.metric.has_value()) json.field("metric", *manifest.metric);
  json.field("world_size", manifest.world_size);
  json.field("threads", manifest.threads);
  json.field("seed", manifest.seed);
  json.field("model_kind", manifest.model_kind);
  json.field("model", manifest.model_yaml);
  json.field("config", manifest.config_yaml);
  write_foreign(json, "data_position", manifest.data_position_json);
  write_foreign(json, "schedule", manifest.schedule_json);
  write_foreign(json, "counters", manifest.counters_json);
  write_foreign(json, "origin", manifest.origin_json);
  write_texts(json, "versions", manifest.versions);
  if (!manifest.kernels.empty()) write_texts(json, "kernels", manifest.kernels);
  json.key("files").begin_array();
  for (const FileEntry& file : manifest.files) {
    JsonWriter line;
    line.begin_object().field("name", file.name).field("bytes", file.bytes).field("xxh3_128", file.hash).end_object();
    json.raw(line.text());
  }
  json.end_array();
  json.key("tensors").begin_array();
  for (const TensorEntry& tensor : manifest.tensors) {
    JsonWriter line;
    line.begin_object().field("name", tensor.name).field("role", role_name(tensor.role));
    line.field("dtype", dtype_name(tensor.dtype)).field("shape", tensor.shape).field("file", tensor.file).end_object();
    json.raw(line.text());
  }
  json.end_array();
  json.field("hash", std::string(kHashDigits, '0'));
  json.end_object();
  std::string text = json.text() + "\n";
  ESM_CHECK(text.ends_with(kEnd), "the manifest does not end with its hash");
  text.replace(text.size() - kEnd.size() - kHashDigits, kHashDigits, hash_of_text(text));
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  if (const std::string excess = json_excess(text, kMaxMembers); !excess.empty())
    fail<CheckpointError>("{}: damaged: {}", where, excess);
  const Json root = Json::parse(text.begin(), text.end(), nullptr, false);
  // A newer version may have another way of hashing, so it is told apart before the hash is looked at.
  if (root.is_object() && root.contains("format_version") && root["format_version"].is_number_integer()) {
    const auto version = root["format_version"].get<int64_t>();
    if (version > kFormatVersion)
      fail<CheckpointError>(
          "{}: written in checkpoint format {}, this program knows formats up to {}: use a newer esmtrain", where,
          version, kFormatVersion);
  }
  check_hash(text, where);
  if (root.is_discarded()) fail<CheckpointError>("{}: not JSON", where);
  const Reader reader(root, where);
  Manifest manifest;
  manifest.format_version = static_cast<int>(std::min<int64_t>(reader.count("format_version"), kFormatVersion));
  if (manifest.format_version < 1) fail<CheckpointError>("{}: checkpoint format 0 is unknown", where);
  manifest.step = reader.count("step");
  manifest.created = reader.text("created");
  if (reader.has("metric") && reader.member("metric").is_number())
    manifest.metric = reader.member("metric").get<double>();
  manifest.world_size = reader.count("world_size");
  manifest.threads = reader.count("threads");
  manifest.seed = reader.unsigned_number("seed");
  manifest.model_kind = reader.text("model_kind");
  manifest.model_yaml = reader.text("model");
  manifest.config_yaml = reader.text("config");
  manifest.data_position_json = reader.foreign("data_position");
  manifest.schedule_json = reader.foreign("schedule");
  manifest.counters_json = reader.foreign("counters");
  manifest.origin_json = reader.foreign("origin");
  manifest.versions = reader.texts("versions");
  if (reader.has("kernels")) manifest.kernels = reader.texts("kernels");
  read_files(reader, manifest);
  return manifest;
}

}  // namespace esm::checkpoint
