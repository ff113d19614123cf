// Values of fields: from YAML nodes and command-line text, and back to YAML.
#pragma once
#include <string>
#include <string_view>

#include "config/field.h"
#include "config/yaml_tree.h"

namespace esm::config {

/// Sets the field from `node`. "" on success; else what is wrong: "expected an integer, found 'abc'", and the field is
/// left as it was. A duplicate key inside a map field is an error too.
std::string read_value(const FieldRef& field, const YamlNode& node);

/// Sets the field from what stands behind `--set key=`. "" or what is wrong.
std::string read_argument(const FieldRef& field, std::string_view text);

/// Sets one name of a map field; the others stay. "" or what is wrong.
std::string read_map_element(const FieldRef& field, std::string_view name, std::string_view text);

/// The value on one line of YAML.
std::string value_text(const ValueRef& value);

/// `key: value` with a newline at the end, indented; long lists and maps one element a line. `comment` goes behind the
/// (first) line.
std::string value_block(std::string_view key, const ValueRef& value, int indent, std::string_view comment);

/// "integer", "number", "true or false", "text", "one of a, b", "list of integers", ...
std::string type_text(const ValueRef& value);

}  // namespace esm::config
