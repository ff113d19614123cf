// YAML text as a plain tree with the place of every piece. The only file that knows yaml-cpp is yaml_tree.cpp.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace esm::config {

struct YamlMember;

/// Lines and columns count from 1.
struct YamlNode {
  enum class Kind { kNothing, kScalar, kList, kMap };
  Kind kind = Kind::kNothing;
  std::string text;                 // kScalar
  bool quoted = false;              // kScalar: "..." or '...' or a block: text even when it looks like a number
  std::vector<YamlNode> items;      // kList
  std::vector<YamlMember> members;  // kMap, in order; a key may occur twice
  int line = 0;
  int column = 0;
};

struct YamlMember {
  std::string key;
  int line = 0;  // of the key
  YamlNode value;
};

/// Text that is not acceptable YAML. what() is the reason alone.
struct YamlError : std::runtime_error {
  YamlError(int line_, int column_, const std::string& reason)
      : std::runtime_error(reason), line(line_), column(column_) {}
  int line, column;
};

inline constexpr size_t kMaxYamlBytes = 8 << 20;
inline constexpr int kMaxYamlDepth = 32;

/// One document; an empty one gives kNothing. A byte order mark at the start and CRLF line ends are fine. Throws
/// YamlError for whatever config.h says is refused, and for anything that is not YAML, UTF-8 or below the limits.
YamlNode parse_yaml(std::string_view text);

/// `node` on one line, for messages: "[a, b]".
std::string flow_text(const YamlNode& node);

/// `text` as a YAML scalar that every reader takes for that same text: bare where that is safe, else in double quotes.
std::string yaml_quote(std::string_view text);

}  // namespace esm::config
