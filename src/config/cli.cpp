#include "config/cli.h"

#include <algorithm>

#include "base/check.h"
#include "config/suggest.h"

namespace esm::config {
namespace {

class Parser {
 public:
  Parser(const std::vector<std::string>& words, const std::vector<OwnOption>& own,
         const std::vector<SettingName>& settings)
      : words_(words), own_(own), settings_(settings) {}

  Arguments run() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word == "--") {
        result_.positionals.insert(result_.positionals.end(), words_.begin() + static_cast<ptrdiff_t>(next_),
                                   words_.end());
        break;
      }
      if (word.size() > 1 && word[0] == '-')
        option(word);
      else
        result_.positionals.push_back(word);
    }
    return std::move(result_);
  }

 private:
  void option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool joined = equals != std::string::npos;
    const auto own = std::find_if(own_.begin(), own_.end(), [&](const OwnOption& o) { return o.name == name; });
    if (own != own_.end()) {
      if (!own->takes_value && joined) fail<ConfigError>("{}: expected no value, found {}", name, word);
      std::string value;
      if (own->takes_value) value = joined ? word.substr(equals + 1) : next_word(word, "a value");
      result_.options.emplace_back(name, value);
    } else if (name == "--set" && !settings_.empty()) {
      set(joined ? word.substr(equals + 1) : next_word(word, "key=value"));
    } else if (name.starts_with("--") && is_setting(name.substr(2))) {
      const std::string value = joined ? word.substr(equals + 1) : next_word(word, "a value");
      result_.overrides.push_back({name.substr(2), value, joined ? word : word + " " + value});
    } else {
      unknown(name);
    }
  }

  void set(const std::string& assignment) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) fail<ConfigError>("--set {}: expected key=value", assignment);
    // Whether the key exists is load()'s business, which reports all mistakes at once.
    result_.overrides.push_back({assignment.substr(0, equals), assignment.substr(equals + 1), "--set " + assignment});
  }

  std::string next_word(const std::string& option, std::string_view expected) {
    const bool at_end = next_ == words_.size();
    if (at_end || words_[next_].starts_with("--"))
      fail<ConfigError>("{}: expected {}, found {}", option, expected,
                        at_end ? "the end of the command line" : words_[next_]);
    return words_[next_++];
  }

  bool is_setting(std::string_view key) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const SettingName& setting) {
      return key == setting.key || (setting.is_map && key.size() > setting.key.size() + 1 &&
                                    key.starts_with(setting.key) && key[setting.key.size()] == '.');
    });
  }

  [[noreturn]] void unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const OwnOption& option : own_) names.push_back(option.name.substr(2));
    if (!settings_.empty()) names.emplace_back("set");
    for (const SettingName& setting : settings_) names.push_back(setting.key);
    names = suggest(name.substr(name.find_first_not_of('-')), names);
    for (std::string& near : names) near.insert(0, "--");
    fail<ConfigError>("unknown option {}{}", name, did_you_mean(names));
  }

  const std::vector<std::string>& words_;
  const std::vector<OwnOption>& own_;
  const std::vector<SettingName>& settings_;
  size_t next_ = 0;
  Arguments result_;
};

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words, const std::vector<OwnOption>& own,
                          const std::vector<SettingName>& settings) {
  return Parser(words, own, settings).run();
}

}  // namespace esm::config
