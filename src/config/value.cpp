#include "config/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <utility>

#include "base/json_writer.h"
#include "config/number.h"
#include "config/suggest.h"

namespace esm::config {
namespace {

using Kind = YamlNode::Kind;
using Numbers = std::map<std::string, double>;
using Texts = std::vector<std::string>;
using TextByName = std::map<std::string, std::string>;
using NamedTexts = std::map<std::string, Texts>;

constexpr size_t kShownBytes = 60;
constexpr size_t kBlockWidth = 110;  // a longer `key: value` line becomes a block

std::string found_words(const YamlNode& node) {
  switch (node.kind) {
    case Kind::kNothing: return "nothing";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a map";
    case Kind::kScalar: break;
  }
  std::string shown = node.text;
  if (shown.size() > kShownBytes) {
    size_t cut = kShownBytes;
    while (cut > 0 && (static_cast<unsigned char>(shown[cut]) & 0xC0) == 0x80) --cut;
    shown = shown.substr(0, cut) + "...";
  }
  return node.quoted ? fmt::format("the quoted text {}", json_quote(shown)) : fmt::format("'{}'", shown);
}

std::string mismatch(std::string_view expected, const YamlNode& node, std::string_view hint = "") {
  return fmt::format("expected {}, found {}{}", expected, found_words(node), hint);
}

bool is_scalar(const YamlNode& node) { return node.kind == Kind::kScalar; }
bool is_plain(const YamlNode& node) { return is_scalar(node) && !node.quoted; }

// --- reading: read(target, node) returns "" or what is wrong; the target is set only on success ----------------------

std::string read(bool& target, const YamlNode& node) {
  if (is_plain(node)) {
    for (const std::string_view word : {"true", "True", "TRUE"})
      if (node.text == word) return target = true, "";
    for (const std::string_view word : {"false", "False", "FALSE"})
      if (node.text == word) return target = false, "";
  }
  return mismatch("true or false", node);
}

template <class Number>
std::string read_number(Number& target, const YamlNode& node, std::string_view expected,
                        std::optional<Number> (*parse)(std::string_view)) {
  if (is_plain(node)) {
    const std::optional<Number> value = parse(node.text);
    if (!value) return mismatch(expected, node, number_hint(node.text));
    target = *value;
    return "";
  }
  const bool only_quotes = is_scalar(node) && parse(node.text);
  return mismatch(expected, node, only_quotes ? " (write it without quotes)" : "");
}

std::string read(int64_t& target, const YamlNode& node) {
  return read_number<int64_t>(target, node, "an integer", parse_integer);
}
std::string read(double& target, const YamlNode& node) {
  return read_number<double>(target, node, "a number", parse_real);
}

std::string read(std::string& target, const YamlNode& node) {
  bool flag = false;
  if (is_plain(node) && (parse_real(node.text) || read(flag, node).empty()))
    return mismatch("text", node, " (write it in quotes if it is meant as text)");
  if (!is_scalar(node))
    return mismatch("text", node, node.kind == Kind::kNothing ? " (write \"\" for empty text)" : "");
  target = node.text;
  return "";
}

template <class T>
std::string read(std::optional<T>& target, const YamlNode& node) {
  if (node.kind == Kind::kNothing) return target.reset(), "";
  T value{};
  std::string wrong = read(value, node);
  if (wrong.empty()) target = value;
  return wrong;
}

template <class T>
std::string read(std::vector<T>& target, const YamlNode& node) {
  const std::string_view elements = std::same_as<T, int64_t> ? "a list of integers" : "text or a list of texts";
  std::vector<T> values;
  if (node.kind == Kind::kList) {
    for (const YamlNode& item : node.items)
      if (std::string wrong = read(values.emplace_back(), item); !wrong.empty())
        return fmt::format("element {}: {}", values.size(), wrong);
  } else if (is_scalar(node)) {
    if (std::string wrong = read(values.emplace_back(), node); !wrong.empty())
      return std::same_as<T, int64_t> ? mismatch(elements, node) : wrong;
  } else {
    return mismatch(elements, node);
  }
  target = std::move(values);
  return "";
}

template <class T, class Read>
std::string read_named(std::map<std::string, T>& target, const YamlNode& node, const Read& read_element) {
  std::map<std::string, T> values;
  for (const YamlMember& member : node.members) {
    if (member.key.empty()) return "expected a name for each element, found an empty one";
    T value{};
    if (std::string wrong = read_element(value, member.value); !wrong.empty())
      return fmt::format("{}: {}", member.key, wrong);
    if (!values.emplace(member.key, std::move(value)).second)
      return fmt::format("the name {} occurs twice (again in line {})", member.key, member.line);
  }
  target = std::move(values);
  return "";
}

constexpr auto kReadElement = [](auto& value, const YamlNode& node) { return read(value, node); };

std::string read(Numbers& target, const YamlNode& node) {
  if (node.kind != Kind::kMap) return mismatch("a map of name: number", node);
  return read_named(target, node, kReadElement);
}

std::string read_joined(std::string& target, const YamlNode& node) {
  if (is_scalar(node)) return target = node.text, "";
  const std::string_view hint = node.kind == Kind::kNothing ? " (quote text with a comma in it)" : "";
  if (node.kind != Kind::kList) return mismatch("text or a list", node, hint);
  std::string joined;
  for (const YamlNode& item : node.items) {
    if (!is_scalar(item)) return fmt::format("element {}: {}", &item - node.items.data() + 1, mismatch("text", item));
    joined += (joined.empty() ? "" : ", ") + item.text;
  }
  target = std::move(joined);
  return "";
}

std::string read(TextByName& target, const YamlNode& node) {
  if (node.kind != Kind::kMap) return mismatch("a map of name: text", node);
  TextByName values;
  std::string wrong = read_named(values, node, read_joined);
  if (wrong.empty()) target = std::move(values);
  return wrong;
}

std::string read(NamedTexts& target, const YamlNode& node, std::string_view default_name) {
  if (node.kind == Kind::kMap) return read_named(target, node, kReadElement);
  if (node.kind == Kind::kNothing) return mismatch("a path, a list of paths or a map of name: paths", node);
  Texts values;
  if (std::string wrong = read(values, node); !wrong.empty()) return wrong;
  target = {{std::string(default_name), std::move(values)}};
  return "";
}

std::string read(const EnumRef& target, const YamlNode& node) {
  std::string all;
  std::vector<std::string> names;
  for (size_t i = 0; i < target.names.size(); ++i) {
    if (is_scalar(node) && node.text == target.names[i]) return target.set(i), "";
    all += fmt::format("{}{}", i == 0 ? "" : ", ", target.names[i]);
    names.emplace_back(target.names[i]);
  }
  return mismatch("one of " + all, node, is_scalar(node) ? did_you_mean(suggest(node.text, names)) : "");
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
// C++20 has this one built in; clang++ before 17 does not.
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

/// Command-line text as the node that the same text would be in a file; where text is wanted, as if it were quoted.
YamlNode argument_node(std::string_view text, bool is_text, bool may_be_collection) {
  if (may_be_collection && (text.starts_with('[') || text.starts_with('{'))) return parse_yaml(text);
  YamlNode node;
  node.kind = Kind::kScalar;
  node.text = std::string(text);
  node.quoted = is_text;
  const bool nothing = text.empty() || text == "null" || text == "Null" || text == "NULL" || text == "~";
  if (nothing && !is_text) node.kind = Kind::kNothing;
  return node;
}

std::string not_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    if (length == 0) return "expected UTF-8 text, found other bytes";
    i += length;
  }
  return "";
}

template <class Read>
std::string with_argument(std::string_view text, bool is_text, bool may_be_collection, Read&& read_node) {
  if (std::string wrong = not_utf8(text); !wrong.empty()) return wrong;
  try {
    return read_node(argument_node(text, is_text, may_be_collection));
  } catch (const YamlError& e) {
    return fmt::format("column {} of the value: {}", e.column, e.what());
  }
}

// --- writing ---------------------------------------------------------------------------------------------------------

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return format_real(value); }
std::string text_of(const std::string& value) { return yaml_quote(value); }
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "null";
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) out += (out.empty() ? "" : ", ") + text_of(value);
  return "[" + out + "]";
}
template <class T>
std::string text_of(const std::map<std::string, T>& values) {
  std::string out;
  for (const auto& [name, value] : values) out += (out.empty() ? "" : ", ") + yaml_quote(name) + ": " + text_of(value);
  return "{" + out + "}";
}

template <class T>
std::string block_lines(const std::vector<T>& values, int indent) {
  std::string out;
  for (const T& value : values) out += fmt::format("{:{}}- {}\n", "", indent, text_of(value));
  return out;
}
template <class T>
std::string block_lines(const std::map<std::string, T>& values, int indent) {
  std::string out;
  for (const auto& [name, value] : values) {
    const std::string text = text_of(value);
    if constexpr (!std::same_as<T, double> && !std::same_as<T, std::string>) {
      if (text.size() > kBlockWidth) {
        out += fmt::format("{:{}}{}:\n{}", "", indent, yaml_quote(name), block_lines(value, indent + 2));
        continue;
      }
    }
    out += fmt::format("{:{}}{}: {}\n", "", indent, yaml_quote(name), text);
  }
  return out;
}

}  // namespace

std::string read_value(const FieldRef& field, const YamlNode& node) {
  return std::visit(Overloaded{[&](const EnumRef& target) { return read(target, node); },
                               [&](NamedTexts* target) { return read(*target, node, field.default_name); },
                               [&](auto* target) { return read(*target, node); }},
                    field.value);
}

std::string read_argument(const FieldRef& field, std::string_view text) {
  const bool is_list_of_text = std::holds_alternative<Texts*>(field.value);
  const bool is_named = std::holds_alternative<NamedTexts*>(field.value);
  const bool is_text = std::holds_alternative<std::string*>(field.value);
  const bool is_collection =
      is_list_of_text || is_named || std::holds_alternative<std::vector<int64_t>*>(field.value) ||
      std::holds_alternative<Numbers*>(field.value) || std::holds_alternative<TextByName*>(field.value);
  return with_argument(text, is_text || ((is_list_of_text || is_named) && !text.empty()), is_collection,
                       [&](const YamlNode& node) { return read_value(field, node); });
}

std::string read_map_element(const FieldRef& field, std::string_view name, std::string_view text) {
  if (name.empty()) return "expected a name behind the last dot, found nothing";
  const std::string key(name);
  return std::visit(Overloaded{[&](Numbers* map) {
                                 return with_argument(text, false, false, [&](const YamlNode& node) {
                                   double value = 0;
                                   std::string wrong = read(value, node);
                                   if (wrong.empty()) (*map)[key] = value;
                                   return wrong;
                                 });
                               },
                               [&](TextByName* map) {
                                 return with_argument(text, !text.empty(), true, [&](const YamlNode& node) {
                                   std::string value;
                                   std::string wrong = read_joined(value, node);
                                   if (wrong.empty()) (*map)[key] = value;
                                   return wrong;
                                 });
                               },
                               [&](NamedTexts* map) {
                                 return with_argument(text, !text.empty(), true, [&](const YamlNode& node) {
                                   Texts values;
                                   std::string wrong = read(values, node);
                                   if (wrong.empty()) (*map)[key] = values;
                                   return wrong;
                                 });
                               },
                               [&](const auto&) { return std::string("expected the key of a map field"); }},
                    field.value);
}

std::string value_text(const ValueRef& value) {
  return std::visit(Overloaded{[](const EnumRef& e) { return std::string(e.names[e.get()]); },
                               [](const auto* v) { return text_of(*v); }},
                    value);
}

std::string value_block(std::string_view key, const ValueRef& value, int indent, std::string_view comment) {
  const std::string text = value_text(value);
  const std::string tail = comment.empty() ? "\n" : fmt::format("  # {}\n", comment);
  const std::string head = fmt::format("{:{}}{}:", "", indent, key);
  if (head.size() + text.size() > kBlockWidth) {
    const auto block = [&](const auto& v) { return head + tail + block_lines(v, indent + 2); };
    if (const auto* v = std::get_if<std::vector<int64_t>*>(&value)) return block(**v);
    if (const auto* v = std::get_if<Texts*>(&value)) return block(**v);
    if (const auto* v = std::get_if<Numbers*>(&value)) return block(**v);
    if (const auto* v = std::get_if<TextByName*>(&value)) return block(**v);
    if (const auto* v = std::get_if<NamedTexts*>(&value)) return block(**v);
  }
  return fmt::format("{} {}{}", head, text, tail);
}

std::string type_text(const ValueRef& value) {
  return std::visit(
      Overloaded{[](bool*) -> std::string { return "true or false"; },
                 [](int64_t*) -> std::string { return "integer"; }, [](double*) -> std::string { return "number"; },
                 [](std::string*) -> std::string { return "text"; },
                 [](std::optional<int64_t>*) -> std::string { return "integer or null"; },
                 [](std::optional<double>*) -> std::string { return "number or null"; },
                 [](std::vector<int64_t>*) -> std::string { return "list of integers"; },
                 [](Texts*) -> std::string { return "list of texts"; },
                 [](Numbers*) -> std::string { return "map of name: number"; },
                 [](TextByName*) -> std::string { return "map of name: text"; },
                 [](NamedTexts*) -> std::string { return "map of name: list of texts"; },
                 [](const EnumRef& e) {
                   std::string all = "one of ";
                   for (size_t i = 0; i < e.names.size(); ++i)
                     all += fmt::format("{}{}", i == 0 ? "" : ", ", e.names[i]);
                   return all;
                 }},
      value);
}

}  // namespace esm::config
