#include "config/yaml_tree.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <utility>

#include "base/json_writer.h"
#include "config/number.h"

namespace esm::config {
namespace {

/// Builds the tree from yaml-cpp's events. (Its own Node tree keeps the first of two equal keys without a word, throws
/// when asked for the wrong kind, and forgets the places of keys.)
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : text_(text) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_extras(mark, "", anchor);
    if (at_key()) stop(mark, "a key must be text, found nothing or null");
    place(mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { stop(mark, kNoAnchors); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_extras(mark, tag, anchor);
    if (tag == "!") refuse_open_quote(mark);
    if (at_key()) {
      if (value == "<<") stop(mark, "merge keys (<<) are not supported; use `extends: other.yaml`");
      open_.back()->members.push_back({value, mark.line + 1, {}});
      has_key_.back() = true;
      return;
    }
    YamlNode& node = place(mark);
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  static constexpr const char* kNoAnchors = "anchors and aliases (&, *) are not supported; use `extends: other.yaml`";

  [[noreturn]] static void stop(const YAML::Mark& mark, const std::string& reason) {
    throw YamlError(mark.line + 1, mark.column + 1, reason);
  }
  static void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) stop(mark, kNoAnchors);
    if (!tag.empty() && tag != "?" && tag != "!") stop(mark, fmt::format("the tag {} is not supported", tag));
  }

  /// yaml-cpp takes a quote that is never closed for one that closes at the end of the file, with all that is between.
  void refuse_open_quote(const YAML::Mark& mark) const {
    const auto start = static_cast<size_t>(mark.pos);
    const char quote = start < text_.size() ? text_[start] : '\0';
    if (quote == '!') stop(mark, "the tag ! is not supported");
    if (quote != '"' && quote != '\'') return;  // a block: | or >
    for (size_t i = start + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\')
        ++i;
      else if (text_[i] == quote && quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote)
        ++i;
      else if (text_[i] == quote)
        return;
    }
    stop(mark, fmt::format("the quote {} is never closed", quote));
  }

  bool at_key() const { return !open_.empty() && open_.back()->kind == YamlNode::Kind::kMap && !has_key_.back(); }

  /// The node that the event at `mark` fills.
  YamlNode& place(const YAML::Mark& mark) {
    YamlNode* node = &root_;
    if (!open_.empty()) {
      YamlNode& parent = *open_.back();
      if (parent.kind == YamlNode::Kind::kList) {
        node = &parent.items.emplace_back();
      } else {
        node = &parent.members.back().value;
        has_key_.back() = false;
      }
    }
    node->line = mark.line + 1;
    node->column = mark.column + 1;
    return *node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_extras(mark, tag, anchor);
    if (at_key()) stop(mark, "a key must be text, found a list or a map (is a bracket left open?)");
    // yaml-cpp recurses once a level, after this event: stopping here bounds the stack.
    if (open_.size() >= static_cast<size_t>(kMaxYamlDepth))
      stop(mark, fmt::format("nested more than {} deep", kMaxYamlDepth));
    YamlNode& node = place(mark);
    node.kind = kind;
    // Valid while open: no vector that holds an open node grows before the node is closed.
    open_.push_back(&node);
    has_key_.push_back(false);
  }
  void close() {
    open_.pop_back();
    has_key_.pop_back();
  }

  std::string_view text_;
  YamlNode root_;
  std::vector<YamlNode*> open_;
  std::vector<bool> has_key_;  // of each open map: a key waits for its value
};

/// Things that yaml-cpp lets pass, or reports in a way that does not help.
void refuse_odd_bytes(std::string_view text) {
  int line = 1;
  size_t line_start = 0;
  bool indenting = true;  // nothing but blanks since the line began
  for (size_t i = 0; i < text.size();) {
    const auto column = static_cast<int>(i - line_start) + 1;
    const size_t length = utf8_length(text, i);
    if (length == 0) throw YamlError(line, column, "not UTF-8 text; is this a YAML file?");
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') {
      ++line;
      line_start = i + 1;
    } else if (byte == '\t' && indenting) {
      const size_t next = std::min(text.find_first_not_of(" \t", i), text.size());
      if (next < text.size() && text[next] != '\n' && text[next] != '#')
        throw YamlError(line, column, "a tab as indentation; YAML wants spaces");
      i = next;
      continue;
    } else if ((byte < 0x20 && byte != '\t') || byte == 0x7F) {
      throw YamlError(line, column, fmt::format("control character 0x{:02x}; is this a YAML file?", byte));
    }
    indenting = byte == '\n' || (indenting && byte == ' ');
    i += length;
  }
}

std::string without_bom_and_cr(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') result += text[i];
  return result;
}

bool means_something_else(std::string_view text) {
  static constexpr std::array kWords{"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"};
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

}  // namespace

YamlNode parse_yaml(std::string_view raw) {
  if (raw.size() > kMaxYamlBytes)
    throw YamlError(1, 1, fmt::format("larger than {} bytes; is this a config?", kMaxYamlBytes));
  const std::string text = without_bom_and_cr(raw);
  refuse_odd_bytes(text);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder(text);
    parser.HandleNextDocument(builder);
    TreeBuilder rest(text);
    if (parser.HandleNextDocument(rest)) {
      const YamlNode second = rest.take();
      throw YamlError(std::max(second.line, 1), std::max(second.column, 1), "a second document; a config is one");
    }
    return builder.take();
  } catch (const YAML::Exception& e) {
    throw YamlError(std::max(e.mark.line, 0) + 1, std::max(e.mark.column, 0) + 1, "not valid YAML: " + e.msg);
  }
}

std::string yaml_quote(std::string_view text) {
  const bool plain_characters = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_./-+@").find(c) != std::string_view::npos;
  });
  // A first letter, '_', '/' or '.' starts neither a number nor an indicator; ".5" and ".inf" are seen to.
  if (plain_characters &&
      (std::isalpha(static_cast<unsigned char>(text[0])) ||
       std::string_view("_/.").find(text[0]) != std::string_view::npos) &&
      !means_something_else(text) && !parse_real(text))
    return std::string(text);

  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t length = std::max<size_t>(utf8_length(text, i), 1);
    const std::string_view piece = text.substr(i, length);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (piece == "\"" || piece == "\\")
      (out += '\\') += piece;
    else if (piece == "\n")
      out += "\\n";
    else if (piece == "\t")
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else if (piece == "\xC2\x85")
      out += "\\x85";  // next line, line and paragraph separator: line breaks to YAML 1.1
    else if (piece == "\xE2\x80\xA8")
      out += "\\L";
    else if (piece == "\xE2\x80\xA9")
      out += "\\P";
    else if (piece == "\xEF\xBB\xBF")
      out += "\\uFEFF";
    else
      out += piece;
    i += length;
  }
  return out + "\"";
}

std::string flow_text(const YamlNode& node) {
  std::string out;
  switch (node.kind) {
    case YamlNode::Kind::kNothing: return "null";
    case YamlNode::Kind::kScalar: return node.quoted ? yaml_quote(node.text) : node.text;
    case YamlNode::Kind::kList:
      for (const YamlNode& item : node.items) out += (out.empty() ? "" : ", ") + flow_text(item);
      return "[" + out + "]";
    case YamlNode::Kind::kMap:
      for (const YamlMember& member : node.members)
        out += (out.empty() ? "" : ", ") + yaml_quote(member.key) + ": " + flow_text(member.value);
      return "{" + out + "}";
  }
  return out;
}

}  // namespace esm::config
