#include "config/yaml_tree.h"

#include "base/files.h"
#include "sample_config.h"
#include "support/catch.h"

using esm::config::parse_yaml;
using esm::config::YamlError;
using esm::config::YamlNode;

namespace {

std::string error_at(const std::string& text) {
  try {
    parse_yaml(text);
  } catch (const YamlError& e) {
    return fmt::format("{}:{}: {}", e.line, e.column, e.what());
  }
  return "";
}

std::string oddity(const std::string& name) {
  return esm::read_text_file(ESM_SOURCE_DIR "/tests/data/oddities/config/" + name);
}

}  // namespace

TEST_CASE("the tree keeps order, duplicates, quotes and places") {
  const YamlNode root = parse_yaml("a: 1\nb:\n  - x\n  - 'y'\na: null\n");
  REQUIRE(root.members.size() == 3);
  CHECK(root.members[0].key == "a");
  CHECK(root.members[2].key == "a");
  CHECK(root.members[2].line == 5);
  CHECK(root.members[2].value.kind == YamlNode::Kind::kNothing);
  const YamlNode& list = root.members[1].value;
  REQUIRE(list.items.size() == 2);
  CHECK_FALSE(list.items[0].quoted);
  CHECK(list.items[1].quoted);
  CHECK(list.items[1].line == 4);
  CHECK(list.items[1].column == 5);
  CHECK(esm::config::flow_text(root) == "{a: 1, b: [x, \"y\"], a: null}");
}

TEST_CASE("byte order mark and CRLF give the same tree") {
  CHECK(esm::config::flow_text(parse_yaml("\xEF\xBB\xBFseed: 7\r\nrun:\r\n  dir: a\r\n")) ==
        "{seed: 7, run: {dir: a}}");
  CHECK(esm::config::flow_text(parse_yaml(oddity("bom_crlf.yaml"))) == "{seed: 7}");
  CHECK(parse_yaml("").kind == YamlNode::Kind::kNothing);
  CHECK(parse_yaml("# only a comment\n").kind == YamlNode::Kind::kNothing);
}

TEST_CASE("what is not acceptable YAML is refused with line and column") {
  CHECK_THAT(error_at(oddity("tab_indent.yaml")), ContainsSubstring("2:1: a tab"));
  CHECK_THAT(error_at("a:\n  \tb: 1\n"), ContainsSubstring("2:3: a tab"));
  CHECK_THAT(error_at("a: 1\nb: [1, 2\n"), ContainsSubstring("3:1: not valid YAML: end of sequence flow not found"));
  CHECK_THAT(error_at("a: 1\n b: 2\n"), ContainsSubstring("2:3: not valid YAML"));
  CHECK_THAT(error_at("a: &x 1\nb: *x\n"), ContainsSubstring("1:4: anchors"));
  CHECK_THAT(error_at("<<: {a: 1}\n"), ContainsSubstring("merge keys"));
  CHECK_THAT(error_at("a: !!int 3\n"), ContainsSubstring("tag"));
  CHECK_THAT(error_at("a: ! \"3\"\n"), ContainsSubstring("tag"));
  CHECK_THAT(error_at("a: 1\n---\nb: 2\n"), ContainsSubstring("3:1: a second document"));
  CHECK_THAT(error_at("? [a]\n: 1\n"), ContainsSubstring("key must be text"));
  CHECK_THAT(error_at(": 1\n"), ContainsSubstring("key must be text"));
  CHECK_THAT(error_at("a: \x01\n"), ContainsSubstring("1:4: control character 0x01"));
  CHECK_THAT(error_at("a: 1\n\xC3( 2\n"), ContainsSubstring("2:1: not UTF-8"));
  CHECK_THAT(error_at("%YAML 9.0\n---\na: 1\n"), ContainsSubstring("not valid YAML"));
  CHECK_THAT(error_at(std::string(esm::config::kMaxYamlBytes + 1, ' ')), ContainsSubstring("larger than"));
}

TEST_CASE("a quote that is never closed is an error, not the rest of the file") {
  CHECK_THAT(error_at("a: \"x\nb: 2\n"), ContainsSubstring("1:4: the quote \" is never closed"));
  CHECK_THAT(error_at("a: 1\nb: 'it''s\nc: 3\n"), ContainsSubstring("2:4: the quote ' is never closed"));
  CHECK_THAT(error_at("a: \"x\\\"\nb: 2\n"), ContainsSubstring("1:4: the quote"));
  CHECK_THAT(error_at("\xC3\xA4: \"\xC3\xA4\n"), ContainsSubstring("never closed"));
  CHECK(error_at("\xC3\xA4: \"\xC3\xA4\"\nb: 'it''s'\nc: \"\\\"\"\nd: |\n  it's\n").empty());
}

TEST_CASE("hostile nesting ends in a message, not in a stack overflow") {
  for (const std::string opening : {"[", "{a: ", "- ", "? ", "a: [", "{? "}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += opening;
    INFO(opening);
    CHECK_FALSE(error_at(text).empty());
  }
  std::string block;
  for (int i = 0; i < 40; ++i) block += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  CHECK_THAT(error_at(block + std::string(40, ' ') + "a: 1"), ContainsSubstring("nested more than 32 deep"));
}

TEST_CASE("damaged files never do worse than an error") {
  // Every single-byte change of a good config by a few hard bytes: parse, or YamlError.
  const std::string good = sample::kGoodYaml;
  int refused = 0, total = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'"', '\'', '[', '{', ':', '-', '&', '*', '!', '|', '\n', '\t', '\0', '\x80', '#', '%'}) {
      std::string text = good;
      text[i] = c;
      refused += !error_at(text).empty();
      ++total;
    }
  }
  CHECK(refused > total / 10);
  CHECK(refused < total);
}

TEST_CASE("quoted text comes back byte for byte") {
  std::vector<std::string> texts = {"",
                                    "a",
                                    "null",
                                    "True",
                                    "~",
                                    "1e-4",
                                    ".5",
                                    ".inf",
                                    "a: b",
                                    "a #b",
                                    "- a",
                                    "[a]",
                                    "{a}",
                                    "*a",
                                    "&a",
                                    "!a",
                                    "a\nb",
                                    "a\tb",
                                    " a",
                                    "a ",
                                    "it's",
                                    "\"x\"",
                                    "\\",
                                    "runs/x",
                                    "%a",
                                    "a,b",
                                    "?",
                                    "@a",
                                    "`a",
                                    "2024-01-01",
                                    "<<",
                                    "=",
                                    "y",
                                    "No",
                                    "off",
                                    "0x1F",
                                    "a%b",
                                    "a+b",
                                    "x@y",
                                    "C:\\dir",
                                    "a\\nb",
                                    "\xC3\xA4\xC3\xB6",
                                    "\xE2\x80\xA8",
                                    "\xC2\x85",
                                    "\xEF\xBB\xBF"
                                    "a",
                                    std::string("a\0b", 3)};
  for (int byte = 1; byte < 128; ++byte) texts.push_back(std::string("x") + static_cast<char>(byte));
  for (const std::string& text : texts) {
    const std::string quoted = esm::config::yaml_quote(text);
    INFO(quoted);
    const YamlNode root = parse_yaml("key: " + quoted + "\nlist: [" + quoted + ", " + quoted + "]\n");
    CHECK(root.members[0].value.kind == YamlNode::Kind::kScalar);
    CHECK(root.members[0].value.text == text);
    REQUIRE(root.members[1].value.items.size() == 2);
    CHECK(root.members[1].value.items[1].text == text);
  }
  CHECK(esm::config::yaml_quote("runs/a-1.b") == "runs/a-1.b");
  CHECK(esm::config::yaml_quote("123") == "\"123\"");
}
