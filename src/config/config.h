// Using a config that field.h declares: load it, print it, explain it, compare it.
//
// Priority: defaults < YAML file (its `extends:` first) < command line. Every value knows where it came from.
//
// The YAML that is read (more in src/config/README.md):
//   * one map; sections are groups of fields. `extends: base.yaml` or `extends: [a.yaml, b.yaml]` at the top, relative
//     to the file that says so: read first, the later ones over the earlier ones, the file itself over all of them.
//   * Keys are checked: unknown (with suggestions), twice in a file, of the wrong kind: errors. Dotted keys, anchors,
//     aliases, merge keys and explicit tags are refused; so are files above 8 MiB, tabs as indentation, and values
//     nested more than 32 deep.
//   * Numbers are decimal: 1, -2.5, .5, 2., +1e-4, 1E6; an integer may be written so too when it is exact (1e6). Not
//     numbers, hence errors: 1_000, 1,000, 007, 0x10, nan, .inf, 1e999, true, nothing, ~, and quoted text ("1e-4").
//   * true and false (also True, TRUE, ...); not yes, no, on, off, 0, 1.
//   * Text is any scalar, as written, except bare numbers and true/false, which want quotes; nothing at all or null is
//     an error (write "" for empty text).
//   * A list may be given as one value. A field with optional value takes null.
//   * map<string, string>: name: text | number | list; a list counts as its elements with ", " between them.
//   * map<string, vector<string>>: one path, a list of paths (both get the field's default name), or name: path | list.
//     A map field is one value: a file that gives it replaces it whole.
// On the command line: text is taken as typed; lists and maps in YAML's flow form ('[a, b]', '{a: 1}') or one value;
// `data.valid.main=a.fasta` sets one name of a map and keeps the others.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/cli.h"
#include "config/field.h"

namespace esm::config {

/// Where a value came from: "default", "configs/smoke.yaml:12", "--set seed=3".
using Origins = std::map<std::string, std::string, std::less<>>;

struct Loaded {
  Origins origins;                 // of every key that a file or the command line gave
  std::vector<std::string> files;  // as read: extended ones first
};

/// One field for people and programs.
struct Entry {
  std::string key;            // "optimizer.lr"
  std::string value;          // YAML on one line: 0.0004, [1, 2], {main: [a.fasta]}, null
  std::string default_value;  // likewise
  std::string origin;         // "default", "configs/smoke.yaml:12", "--set seed=3"
  std::string help;
  std::string expectation;  // allowed values in words, "" when the type says all
  std::string type;         // "integer", "number", "true or false", "text", "one of a, b", "list of integers", ...
  Resume resume = Resume::kFree;
  bool is_map = false;  // key.NAME may be set on the command line

  bool is_default() const { return value == default_value; }
};

/// A setting that differs between a checkpoint and now.
struct Difference {
  enum class Side { kBoth, kOnlyOld, kOnlyNew };
  std::string key;
  std::string old_value;          // "" when kOnlyNew
  std::string new_value;          // "" when kOnlyOld
  Resume resume = Resume::kFree;  // policy of the field; kFree for kOnlyOld (the field is gone)
  Side side = Side::kBoth;
};

/// A config, type-erased. Valid as long as the struct it was made from.
struct View {
  std::function<void(Visitor&)> visit;
};

template <class C>
View view(C& config) {
  return {[&config](Visitor& visitor) { visit_all(config, visitor); }};
}

namespace detail {
Loaded load(const View& config, const std::string& yaml_path, const std::vector<Override>& overrides);
Loaded load_text(const View& config, const std::string& text, const std::string& name,
                 const std::vector<Override>& overrides);
std::vector<Entry> entries(const View& config, const View& defaults, const Origins& origins);
std::vector<Difference> diff(const std::string& old_yaml, const View& old_config, const View& new_config);
std::string to_yaml(const View& config, const Origins* origins);
std::string reference_markdown(const View& defaults, std::string_view title);
}  // namespace detail

/// Fills `config` from the file and the command line. An empty yaml_path: defaults and command line only.
/// Throws one ConfigError that lists everything that is wrong, a line each:
///   configs/a.yaml:12: optimizer.lr: expected a number, found 'abc'
///   --set train.max_stepps=3: unknown key train.max_stepps; did you mean train.max_steps?
template <class C>
Loaded load(C& config, const std::string& yaml_path, const std::vector<Override>& overrides = {}) {
  config = C{};
  return detail::load(view(config), yaml_path, overrides);
}

/// The same from text in memory (a checkpoint's copy); `name` stands for the file in messages, and `extends:` is
/// refused.
template <class C>
Loaded load_text(C& config, const std::string& text, const std::string& name,
                 const std::vector<Override>& overrides = {}) {
  config = C{};
  return detail::load_text(view(config), text, name, overrides);
}

/// Every field in order of declaration.
template <class C>
std::vector<Entry> entries(const C& config, const Origins& origins = {}) {
  C copy = config;
  C defaults;
  return detail::entries(view(copy), view(defaults), origins);
}

/// The whole config as YAML: loading it gives an equal config, bit for bit. With `origins`, a comment behind each value
/// says where it came from.
template <class C>
std::string to_yaml(const C& config, const Origins* origins = nullptr) {
  C copy = config;
  return detail::to_yaml(view(copy), origins);
}

/// Fields whose value differs between `old_yaml` (a to_yaml() of some earlier version of the program) and `config`, in
/// order of declaration, then keys that only `old_yaml` has. Throws ConfigError only when old_yaml is not YAML.
template <class C>
std::vector<Difference> diff(const std::string& old_yaml, const C& config) {
  C copy = config;
  C old;
  return detail::diff(old_yaml, view(old), view(copy));
}

/// The reference page of C: one table a section.
template <class C>
std::string reference_markdown(std::string_view title) {
  C defaults;
  return detail::reference_markdown(view(defaults), title);
}

/// "optimizer.lr = 0.0004 (configs/smoke.yaml:12)" for every field that is not at its default: for the log.
std::vector<std::string> non_default_lines(const std::vector<Entry>& entries);

/// "free", "warns" or "fixed".
std::string_view resume_words(Resume resume);

}  // namespace esm::config
