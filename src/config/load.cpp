// Reading a config: files, then the command line, then the checks; every error is kept until the end.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/suggest.h"
#include "config/value.h"
#include "config/yaml_tree.h"

namespace esm::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtends = "extends";
constexpr size_t kHelpful = 100;  // a file with more errors is no config; a suggestion compares the key with all others

/// At most one byte more than a config may have: a data file given by mistake is not read whole.
std::string read_some(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail<DataError>("{} is a folder, not a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<DataError>("cannot open {}: {}", path, errno_text());
  std::string text(kMaxYamlBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

class Loader {
 public:
  explicit Loader(const View& config) : schema_(config.visit), names_(schema_.names()) {}

  /// `asked_by`: "file:line: " of the `extends:` that wants it, "" for the first file.
  void read_file(const std::string& path, const std::string& asked_by) {
    std::error_code error;
    const std::string identity = fs::weakly_canonical(path, error).string();
    if (std::find(open_files_.begin(), open_files_.end(), identity) != open_files_.end()) {
      std::string circle;
      for (const std::string& name : open_names_) circle += name + " -> ";
      return add_error("{}extends: {} extends itself: {}{}", asked_by, path, circle, path);
    }
    std::string text;
    try {
      text = read_some(path);
    } catch (const DataError& e) {
      file_missing_ = true;
      return add_error("{}{}", asked_by, e.what());
    }
    open_files_.push_back(identity);
    open_names_.push_back(path);
    read_text(text, path, /*may_extend=*/true);
    open_files_.pop_back();
    open_names_.pop_back();
  }

  void read_text(const std::string& text, const std::string& name, bool may_extend) {
    YamlNode root;
    try {
      root = parse_yaml(text);
    } catch (const YamlError& e) {
      file_missing_ = true;
      return add_error("{}:{}:{}: {}", name, e.line, e.column, e.what());
    }
    if (root.kind == YamlNode::Kind::kNothing) {
      file_missing_ = true;
      return add_error("{}:1: expected `section: ...` or `key: value` lines, found an empty file", name);
    }
    if (root.kind != YamlNode::Kind::kMap) {
      file_missing_ = true;
      const bool list = root.kind == YamlNode::Kind::kList;
      return add_error("{}:{}: expected a map (`key: value` lines) at the top, found {}", name, root.line,
                       list ? "a list" : fmt::format("'{}' (is a space missing behind a colon?)", root.text));
    }
    extend(root, name, may_extend);
    files_.push_back(name);
    read_section(root, "", name);
  }

  void apply(const Override& setting) {
    std::string_view name;
    std::string wrong;
    std::string key = setting.key;
    if (const SchemaField* field = schema_.find_field(setting.key)) {
      wrong = read_argument(field->ref, setting.value);
      if (wrong.empty()) origins_[key] = setting.written;
    } else if (const SchemaField* map = schema_.find_map_element(setting.key, name)) {
      key = map->key;
      wrong = read_map_element(map->ref, name, setting.value);
      if (wrong.empty()) {
        std::string& origin = origins_[key];
        origin += (origin.empty() ? "" : ", ") + setting.written;
      }
    } else if (schema_.find_group(setting.key) != nullptr && !setting.key.empty()) {
      return add_error("{}: {} is a section; set one of its keys: {}", setting.written, key, keys_of(key));
    } else {
      return add_error("{}: unknown key {}{}", setting.written, key, did_you_mean(suggest(key, names_)));
    }
    if (wrong.empty()) return;
    broken_.insert(key);
    add_error("{}: {}: {}", setting.written, setting.key, wrong);
  }

  Loaded finish() {
    Problems problems;
    const auto broken = [&](const std::string& key) {
      return broken_.contains(key) || (file_missing_ && !origins_.contains(key));
    };
    check_values(schema_, broken, problems);
    for (const auto& [key, what] : problems.items) {
      const auto origin = origins_.find(key);
      if (origin != origins_.end())
        add_error("{}: {}: {}", origin->second, key, what);
      else if (schema_.find_field(key) == nullptr)
        add_error("{}{}{}", key, key.empty() ? "" : ": ", what);
      else
        add_error("{}: {} (the default; set it in the file or with --set {}=...)", key, what, key);
    }
    if (errors_.size() == 1) throw ConfigError(errors_[0]);
    if (!errors_.empty()) {
      std::string all = fmt::format("{} errors in the configuration:", errors_.size());
      for (const std::string& error : errors_) all += "\n  " + error;
      throw ConfigError(all);
    }
    return {std::move(origins_), std::move(files_)};
  }

 private:
  template <class... Args>
  void add_error(fmt::format_string<Args...> format, Args&&... args) {
    std::string error = fmt::format(format, std::forward<Args>(args)...);
    // Keys and values stand in it as they were written; an error stays one line.
    std::replace_if(
        error.begin(), error.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    errors_.push_back(std::move(error));
  }

  void extend(const YamlNode& root, const std::string& name, bool may_extend) {
    for (const YamlMember& member : root.members) {
      if (member.key != kExtends) continue;
      const std::string place = fmt::format("{}:{}: ", name, member.line);
      std::vector<std::string> paths;
      FieldRef field;
      field.value = &paths;
      if (!may_extend) {
        add_error("{}extends: not possible here", place);
      } else if (const std::string wrong = read_value(field, member.value); !wrong.empty()) {
        add_error("{}extends: {}", place, wrong);
      } else {
        for (const std::string& path : paths)
          read_file((fs::path(name).parent_path() / path).lexically_normal().string(), place);
      }
    }
  }

  void read_section(const YamlNode& map, const std::string& prefix, const std::string& file) {
    std::map<std::string, int> first_line;
    for (const YamlMember& member : map.members) {
      const std::string key = join_key(prefix, member.key);
      const auto [first, is_new] = first_line.emplace(member.key, member.line);
      if (!is_new) {
        add_error("{}:{}: {}: the key is given twice, first in line {}", file, member.line, key, first->second);
        continue;
      }
      if (prefix.empty() && member.key == kExtends) continue;
      read_member(member, key, fmt::format("{}:{}", file, member.line), file);
    }
  }

  void read_member(const YamlMember& member, const std::string& key, const std::string& place,
                   const std::string& file) {
    const bool dotted = member.key.find('.') != std::string::npos;
    if (const SchemaField* field = dotted ? nullptr : schema_.find_field(key)) {
      const std::string wrong = read_value(field->ref, member.value);
      if (wrong.empty()) {
        origins_[key] = place;
        broken_.erase(key);
      } else {
        broken_.insert(key);
        add_error("{}: {}: {}", place, key, wrong);
      }
    } else if (schema_.find_group(key) != nullptr && !dotted && !member.key.empty()) {
      if (member.value.kind == YamlNode::Kind::kMap)
        read_section(member.value, key, file);
      else if (member.value.kind != YamlNode::Kind::kNothing)  // a section may have all its lines commented out
        add_error("{}: {}: expected a section (a map) with keys {}, found {}{}", place, key, keys_of(key),
                  member.value.kind == YamlNode::Kind::kList ? "a list" : fmt::format("'{}'", member.value.text),
                  did_you_mean(fields_named(member.key)));
    } else if (dotted && (schema_.find_field(key) != nullptr || schema_.find_group(key) != nullptr)) {
      add_error("{}: {}: dotted keys are for the command line; in a file write nested sections", place, key);
    } else {
      add_error("{}: unknown key {}{}", place, key, did_you_mean(suggest_for(member, key)));
    }
  }

  /// The key itself may be misspelt, or an unknown section may hold keys that belong elsewhere.
  std::vector<std::string> suggest_for(const YamlMember& member, const std::string& key) const {
    if (errors_.size() >= kHelpful) return {};
    std::vector<std::string> names = suggest(key, names_);
    for (size_t i = 0; i < std::min(kHelpful, member.value.members.size()); ++i)
      for (std::string& name : suggest(join_key(key, member.value.members[i].key), names_))
        if (names.size() < 3 && std::find(names.begin(), names.end(), name) == names.end())
          names.push_back(std::move(name));
    return names;
  }

  /// A section's name may also be a field elsewhere: `train: a.fasta` was meant to be data.train.
  std::vector<std::string> fields_named(const std::string& name) const {
    std::vector<std::string> keys;
    for (const SchemaField& field : schema_.fields())
      if (field.key.ends_with("." + name)) keys.push_back(field.key);
    return keys;
  }

  /// Names directly below a section.
  std::string keys_of(const std::string& prefix) const {
    std::string all;
    std::set<std::string> seen;
    const SchemaGroup* group = schema_.find_group(prefix);
    for (size_t i = group->first_field; i < group->end_field; ++i) {
      std::string name = schema_.fields()[i].key.substr(prefix.size() + 1);
      name = name.substr(0, name.find('.'));
      if (seen.insert(name).second) all += (all.empty() ? "" : ", ") + name;
    }
    return all;
  }

  Schema schema_;
  std::vector<std::string> names_;
  std::vector<std::string> errors_;
  std::set<std::string> broken_;  // fields that were given something unusable
  bool file_missing_ = false;     // then defaults say nothing about what the user wants
  Origins origins_;
  std::vector<std::string> files_;
  std::vector<std::string> open_files_;  // canonical, for circles
  std::vector<std::string> open_names_;
};

}  // namespace

namespace detail {

Loaded load(const View& config, const std::string& yaml_path, const std::vector<Override>& overrides) {
  Loader loader(config);
  if (!yaml_path.empty()) loader.read_file(yaml_path, "");
  for (const Override& setting : overrides) loader.apply(setting);
  return loader.finish();
}

Loaded load_text(const View& config, const std::string& text, const std::string& name,
                 const std::vector<Override>& overrides) {
  Loader loader(config);
  loader.read_text(text, name, /*may_extend=*/false);
  for (const Override& setting : overrides) loader.apply(setting);
  return loader.finish();
}

}  // namespace detail
}  // namespace esm::config
