#include "app/args.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "config/number.h"

namespace esm::app {

/// One declared argument; `set` takes what the user wrote and returns what was expected when it is not that.
struct Args::Item {
  std::string name;     // "--out", or "INPUT" for a positional
  std::string metavar;  // "" for a flag and for positionals
  std::string help;
  std::string default_text;
  Need need = kOptional;
  bool is_flag = false;
  bool is_list = false;
  bool is_hidden = false;
  std::function<std::string(const std::vector<std::string>&)> set;

  bool is_option() const { return name.starts_with("--"); }
};

Args::Args(std::string command, std::string summary) : command_(std::move(command)), summary_(std::move(summary)) {}
Args::~Args() = default;

Args& Args::add(Item item) {
  items_.push_back(std::move(item));
  return *this;
}

Args& Args::positional(std::string& value, std::string_view name, std::string_view help, Need need) {
  return add({.name = std::string(name),
              .metavar = "",
              .help = std::string(help),
              .default_text = "",
              .need = need,
              .set = [&value](const auto& words) { return value = words.back(), value.empty() ? "a name" : ""; }});
}

Args& Args::positionals(std::vector<std::string>& values, std::string_view name, std::string_view help) {
  return add({.name = std::string(name),
              .metavar = "",
              .help = std::string(help),
              .default_text = "",
              .need = kRequired,
              .is_list = true,
              .set = [&values](const auto& words) { return values = words, ""; }});
}

Args& Args::flag(bool& value, std::string_view name, std::string_view help) {
  return add({.name = std::string(name),
              .metavar = "",
              .help = std::string(help),
              .default_text = "",
              .is_flag = true,
              .set = [&value](const auto&) { return value = true, ""; }});
}

Args& Args::option(std::string& value, std::string_view name, std::string_view metavar, std::string_view help,
                   Need need) {
  return add({.name = std::string(name),
              .metavar = std::string(metavar),
              .help = std::string(help),
              .default_text = value,
              .need = need,
              .set = [&value](const auto& words) { return value = words.back(), ""; }});
}

Args& Args::option(int64_t& value, std::string_view name, std::string_view metavar, std::string_view help, Need need) {
  return add({.name = std::string(name),
              .metavar = std::string(metavar),
              .help = std::string(help),
              .default_text = fmt::format("{}", value),
              .need = need,
              .set = [&value](const auto& words) -> std::string {
                const auto number = config::parse_integer(words.back());
                if (!number) return "an integer";
                value = *number;
                return "";
              }});
}

Args& Args::option(double& value, std::string_view name, std::string_view metavar, std::string_view help, Need need) {
  return add({.name = std::string(name),
              .metavar = std::string(metavar),
              .help = std::string(help),
              .default_text = config::format_real(value),
              .need = need,
              .set = [&value](const auto& words) -> std::string {
                const auto number = config::parse_real(words.back());
                if (!number) return "a number";
                value = *number;
                return "";
              }});
}

Args& Args::option(std::vector<std::string>& values, std::string_view name, std::string_view metavar,
                   std::string_view help, Need need) {
  return add({.name = std::string(name),
              .metavar = std::string(metavar),
              .help = std::string(help),
              .default_text = "",
              .need = need,
              .is_list = true,
              .set = [&values](const auto& words) { return values = words, ""; }});
}

Args& Args::choice(std::string& value, std::string_view name, std::initializer_list<std::string_view> choices,
                   std::string_view help, Need need) {
  std::string all;
  for (const std::string_view choice : choices) all += (all.empty() ? "" : "|") + std::string(choice);
  const std::vector<std::string> names(choices.begin(), choices.end());
  return add({.name = std::string(name),
              .metavar = all,
              .help = std::string(help),
              .default_text = value,
              .need = need,
              .set = [&value, names, all](const auto& words) -> std::string {
                if (std::find(names.begin(), names.end(), words.back()) == names.end()) return "one of " + all;
                value = words.back();
                return "";
              }});
}

Args& Args::hide() {
  items_.back().is_hidden = true;
  return *this;
}

Args& Args::settings(std::vector<config::Override>& overrides, std::vector<config::Entry> fields) {
  overrides_ = &overrides;
  fields_ = std::move(fields);
  return *this;
}

Args& Args::example(std::string command_line, std::string what) {
  examples_.emplace_back(std::move(command_line), std::move(what));
  return *this;
}

bool Args::parse(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto end = std::find(words.begin(), words.end(), "--");
  if (std::find(words.begin(), end, "--help") != end || std::find(words.begin(), end, "-h") != end) {
    std::fputs(help().c_str(), stdout);
    return false;
  }

  std::vector<config::OwnOption> own{{"--help", false}};
  for (const Item& item : items_)
    if (item.is_option()) own.push_back({item.name, !item.is_flag});
  std::vector<config::SettingName> names;
  for (const config::Entry& field : fields_) names.push_back({field.key, field.is_map});

  try {
    config::Arguments given = config::parse_arguments(words, own, names);
    assign(given);
    if (overrides_ != nullptr) *overrides_ = std::move(given.overrides);
  } catch (const ConfigError& e) {
    fail<ConfigError>("esmtrain {}: {}; see `esmtrain {} --help`", command_, e.what(), command_);
  }
  return true;
}

void Args::assign(const config::Arguments& given) const {
  size_t next = 0;  // positional word
  for (const Item& item : items_) {
    std::vector<std::string> values;
    if (item.is_option()) {
      for (const auto& [name, value] : given.options)
        if (name == item.name) values.push_back(value);
    } else {
      while (next < given.positionals.size() && (item.is_list || values.empty()))
        values.push_back(given.positionals[next++]);
    }
    if (values.empty() && item.need == kRequired) fail<ConfigError>("{} is missing", item.name);
    if (values.empty()) continue;
    if (values.size() > 1 && !item.is_list) fail<ConfigError>("{} is given {} times", item.name, values.size());
    if (const std::string expected = item.set(values); !expected.empty())
      fail<ConfigError>("{}: expected {}, found '{}'", item.name, expected, values.back());
  }
  if (next < given.positionals.size()) fail<ConfigError>("'{}' is one argument too many", given.positionals[next]);
}

std::string Args::usage() const {
  std::string text = "esmtrain " + command_;
  for (const Item& item : items_) {
    std::string word = item.name;
    if (item.is_option() && item.need == kOptional) continue;  // listed below
    if (item.is_option()) word += " " + item.metavar;
    if (item.is_list && !item.is_option()) word += "...";
    text += item.need == kRequired ? " " + word : " [" + word + "]";
  }
  if (std::any_of(items_.begin(), items_.end(), [](const Item& i) { return i.is_option() && i.need == kOptional; }))
    text += " [options]";
  if (overrides_ != nullptr) text += " [--set key=value | --key value ...]";
  return text;
}

std::string Args::help() const {
  std::string text = fmt::format("{}\n\nUsage: {}\n", summary_, usage());
  const auto list = [&](std::string_view title, bool options) {
    std::string lines;
    for (const Item& item : items_) {
      if (item.is_option() != options || item.is_hidden) continue;
      const std::string name = item.metavar.empty() ? item.name : item.name + " " + item.metavar;
      const std::string note = item.default_text.empty() ? "" : fmt::format(" (default: {})", item.default_text);
      lines += fmt::format("  {:<24} {}{}\n", name, item.help, note);
    }
    if (options) lines += fmt::format("  {:<24} {}\n", "--help, -h", "This text.");
    if (!lines.empty()) text += fmt::format("\n{}:\n{}", title, lines);
  };
  list("Arguments", false);
  list("Options", true);
  if (!examples_.empty()) {
    text += "\nExamples:\n";
    for (const auto& [line, what] : examples_) text += fmt::format("  {}\n      {}\n", line, what);
  }
  if (overrides_ != nullptr) {
    text += "\nSettings (in the YAML file, or here as `--set key=value` or `--key value`; later ones win):\n";
    for (const config::Entry& field : fields_)
      text += fmt::format("  {}: {}{}{}; default {}\n      {}\n", field.key, field.type,
                          field.expectation.empty() ? "" : ", ", field.expectation, field.default_value, field.help);
  }
  return text;
}

}  // namespace esm::app
