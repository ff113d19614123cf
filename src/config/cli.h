// Settings on the command line: `--set key=value`, `--key value`, `--key=value`, for any field of a config.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace esm::config {

/// One setting given on the command line, for load(). Later ones win.
struct Override {
  std::string key;      // dotted: "train.max_steps"; below a map field also a name: "data.valid.main"
  std::string value;    // as typed
  std::string written;  // how the user wrote it, for messages: "--set train.max_steps=3", "--seed 3"

  bool operator==(const Override&) const = default;
};

/// An option of the command itself.
struct OwnOption {
  std::string name;         // "--resume"
  bool takes_value = true;  // false: a flag
};

/// A field that may be named on the command line.
struct SettingName {
  std::string key;      // "data.valid"
  bool is_map = false;  // then "data.valid.NAME" is a name too
};

/// A command line, taken apart; everything in its order.
struct Arguments {
  std::vector<Override> overrides;
  std::vector<std::pair<std::string, std::string>> options;  // own ones: name and value ("" for a flag)
  std::vector<std::string> positionals;
};

/// Sorts `words` (without the program's name). An option's value follows behind '=' or as the next word, whatever that
/// looks like, unless it starts with "--" (then '=' is needed). A bool setting needs its value too:
/// `--model.token_dropout false`. All words behind a lone "--" are positional. `--set` is known when there are
/// settings. Throws ConfigError: an option that is neither an own option nor a setting, with up to three suggestions
/// among both; an option without its value; a flag with one.
Arguments parse_arguments(const std::vector<std::string>& words, const std::vector<OwnOption>& own,
                          const std::vector<SettingName>& settings);

}  // namespace esm::config
