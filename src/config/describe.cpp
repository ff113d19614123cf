// Showing a config: entries, resolved YAML, reference page, differences to an older one.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/yaml_tree.h"

namespace esm::config {
namespace {

std::string origin_of(const std::string& key, const Origins& origins) {
  const auto found = origins.find(key);
  return found == origins.end() ? "default" : found->second;
}

/// For a comment in YAML: what the user typed may hold a line break.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return text;
}

/// What a YAML document of some earlier time says: fields that still exist, read into `old_schema`, and the others.
class OldReader {
 public:
  explicit OldReader(const Schema& old_schema) : schema_(old_schema) {}

  void read(const YamlNode& map, const std::string& prefix) {
    for (const YamlMember& member : map.members) {
      const std::string key = join_key(prefix, member.key);
      if (const SchemaField* field = schema_.find_field(key)) {
        const bool readable = read_value(field->ref, member.value).empty();
        values_[key] = readable ? value_text(field->ref.value) : flow_text(member.value);
      } else if (member.value.kind == YamlNode::Kind::kMap) {
        read(member.value, key);
      } else {
        gone_.emplace_back(key, flow_text(member.value));
      }
    }
  }
  const Origins& values() const { return values_; }
  const std::vector<std::pair<std::string, std::string>>& gone() const { return gone_; }

 private:
  const Schema& schema_;
  Origins values_;  // key -> value
  std::vector<std::pair<std::string, std::string>> gone_;
};

std::string table_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|')
      out += "\\|";
    else if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string_view resume_words(Resume resume) {
  switch (resume) {
    case Resume::kFree: return "free";
    case Resume::kWarn: return "warns";
    case Resume::kFixed: return "fixed";
  }
  return "";
}

std::vector<std::string> non_default_lines(const std::vector<Entry>& entries) {
  std::vector<std::string> lines;
  for (const Entry& entry : entries)
    if (!entry.is_default()) lines.push_back(fmt::format("{} = {} ({})", entry.key, entry.value, entry.origin));
  return lines;
}

namespace detail {

std::vector<Entry> entries(const View& config, const View& defaults, const Origins& origins) {
  const Schema now(config.visit);
  const Schema before(defaults.visit);
  std::vector<Entry> result;
  for (size_t i = 0; i < now.fields().size(); ++i) {
    const auto& [key, ref] = now.fields()[i];
    Entry entry;
    entry.key = key;
    entry.value = value_text(ref.value);
    entry.default_value = value_text(before.fields()[i].ref.value);
    entry.origin = origin_of(key, origins);
    entry.help = std::string(ref.help);
    entry.expectation = ref.expectation;
    entry.type = type_text(ref.value);
    entry.resume = ref.resume;
    entry.is_map = is_map_field(ref.value);
    result.push_back(std::move(entry));
  }
  return result;
}

std::string to_yaml(const View& config, const Origins* origins) {
  struct Writer : Visitor {
    void field(const FieldRef& ref) override {
      const std::string key = join_key(prefix, ref.name);
      out += value_block(ref.name, ref.value, indent(), origins == nullptr ? "" : one_line(origin_of(key, *origins)));
    }
    void begin_group(const GroupRef& group) override {
      if (!group.name.empty()) out += fmt::format("{:{}}{}:\n", "", indent(), group.name);
      open.push_back(prefix.size());
      prefix = join_key(prefix, group.name);
    }
    void end_group() override {
      prefix.resize(open.back());
      open.pop_back();
    }
    int indent() const { return open.empty() ? 0 : 2 * (static_cast<int>(open.size()) - 1); }

    const Origins* origins = nullptr;
    std::string out;
    std::string prefix;
    std::vector<size_t> open;  // length of the prefix outside of each open group
  } writer;
  writer.origins = origins;
  config.visit(writer);
  return writer.out;
}

std::vector<Difference> diff(const std::string& old_yaml, const View& old_config, const View& new_config) {
  const Schema old_schema(old_config.visit);
  const Schema new_schema(new_config.visit);
  OldReader old(old_schema);
  try {
    old.read(parse_yaml(old_yaml), "");
  } catch (const YamlError& e) {
    fail<ConfigError>("the earlier configuration is damaged: line {}, column {}: {}", e.line, e.column, e.what());
  }
  std::vector<Difference> result;
  for (const auto& [key, ref] : new_schema.fields()) {
    const std::string now = value_text(ref.value);
    const auto before = old.values().find(key);
    if (before == old.values().end())
      result.push_back({key, "", now, ref.resume, Difference::Side::kOnlyNew});
    else if (before->second != now)
      result.push_back({key, before->second, now, ref.resume, Difference::Side::kBoth});
  }
  for (const auto& [key, value] : old.gone())
    result.push_back({key, value, "", Resume::kFree, Difference::Side::kOnlyOld});
  return result;
}

std::string reference_markdown(const View& defaults, std::string_view title) {
  const Schema schema(defaults.visit);
  std::string out = fmt::format(
      "# {}\n\nGenerated by `esmtrain config reference`. Each key can stand in a YAML file (sections are maps) or on "
      "the "
      "command line (`--set key=value`, `--key value`).\nOn resume, a changed value is taken (free), taken with a "
      "warning "
      "(warns) or refused (fixed).\n",
      title);
  for (const SchemaGroup& group : schema.groups()) {
    std::string rows;
    for (size_t i = group.first_field; i < group.end_field; ++i) {
      const auto& [key, ref] = schema.fields()[i];
      const size_t dot = key.rfind('.');
      if ((dot == std::string::npos ? "" : key.substr(0, dot)) != group.prefix) continue;  // of an inner group
      std::string type = type_text(ref.value);
      if (!ref.expectation.empty()) type += "; " + ref.expectation;
      rows += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key, table_cell(type), value_text(ref.value),
                          resume_words(ref.resume), table_cell(ref.help));
    }
    if (!group.prefix.empty()) out += fmt::format("\n## {}\n", group.prefix);
    if (!group.help.empty()) out += fmt::format("\n{}\n", group.help);
    if (!rows.empty()) out += "\n| key | values | default | on resume | what it does |\n|---|---|---|---|---|\n" + rows;
  }
  return out;
}

}  // namespace detail
}  // namespace esm::config
