// Configs changed at random, as tired people and broken editors change them. Seeded: the same edits every time.
#pragma once
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace esm::test {

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// A line `key: value` of a config in block style, two spaces a level.
struct KeyLine {
  std::string key;      // last part
  std::string full;     // dotted
  std::string section;  // dotted, "" at the top
  size_t index;         // line number in the file, from 0
  size_t indent;
};

inline std::vector<KeyLine> keys_of(const std::vector<std::string>& lines) {
  std::vector<KeyLine> result;
  std::vector<std::string> open;  // names of the open sections
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t indent = lines[i].find_first_not_of(' ');
    const std::string key = lines[i].substr(indent, lines[i].find(':') - indent);
    open.resize(indent / 2);
    std::string section;
    for (const std::string& name : open) section += (section.empty() ? "" : ".") + name;
    if (lines[i].ends_with(':'))
      open.push_back(key);
    else
      result.push_back({key, section.empty() ? key : section + "." + key, section, i, indent});
  }
  return result;
}

class ConfigEdits {
 public:
  explicit ConfigEdits(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  /// One to four edits of any kind; the result may be anything, a good config too.
  std::string broken(const std::string& text) {
    std::string result = text;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      if (below(3) == 0)
        edit_bytes(result);
      else
        edit_line(result);
    }
    return result;
  }

  struct Typo {
    std::string text;     // the config with one key misspelt or moved
    std::string meant;    // that key, dotted
    std::string written;  // what stands there now, dotted
  };
  /// One key misspelt or moved, in one of the ways of oddities/config/typos.tsv. Nothing when the way does not apply.
  Typo typo(const std::vector<std::string>& good, const KeyLine& line) {
    std::string key = line.key, section = line.section;
    const size_t indent = line.indent;
    const std::string value = good[line.index].substr(good[line.index].find(':'));
    std::vector<std::string> lines = good;
    lines[line.index] = "";
    size_t where = line.index;
    std::string before;
    switch (below(8)) {
      case 0: key.pop_back(); break;
      case 1: {
        const size_t i = below(key.size());
        key.insert(i, 1, key[i]);
        break;
      }
      case 2: {
        const size_t i = below(key.size());
        if (i + 1 == key.size()) return {};
        std::swap(key[i], key[i + 1]);
        break;
      }
      case 3: std::replace(key.begin(), key.end(), '_', '-'); break;
      case 4: key[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(key[0]))); break;
      case 5: key[below(key.size())] = static_cast<char>('a' + below(26)); break;
      case 6:  // one level too high: in front of its section
        if (section.empty()) return {};
        while (good[where].find_first_not_of(' ') >= indent) --where;
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(where), std::string(indent - 2, ' ') + key + value);
        section = section.substr(0, section.find('.') == std::string::npos ? 0 : section.rfind('.'));
        std::erase(lines, std::string());
        return {joined(lines), line.full, section.empty() ? key : section + "." + key};
      case 7:  // one level too deep
        before = std::string(indent, ' ') + "inner:\n  ";
        section += section.empty() ? "inner" : ".inner";
        break;
    }
    lines[where] = before + std::string(indent, ' ') + key + value;
    if (key.empty() || (key == line.key && before.empty())) return {};
    return {joined(lines), line.full, section.empty() ? key : section + "." + key};
  }

 private:
  static constexpr std::array kValues{"",
                                      "~",
                                      "null",
                                      "true",
                                      "yes",
                                      "1e999",
                                      "99999999999999999999",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "1e18",
                                      "-1",
                                      "0",
                                      "0x10",
                                      "007",
                                      "1_000",
                                      "nan",
                                      "-.inf",
                                      "'1'",
                                      "\"\\u0000\"",
                                      "[1, 2]",
                                      "{a: 1}",
                                      "{[a]: {}}",
                                      "[",
                                      "}",
                                      "\"",
                                      "'",
                                      "&a 1",
                                      "*a",
                                      "!!int 3",
                                      "!<x> y",
                                      "|",
                                      ">+9",
                                      "- a",
                                      "? b",
                                      "a: b: c",
                                      "# nothing",
                                      "@",
                                      "`",
                                      "%",
                                      "\xC3\xA9\xE2\x80\xA8\xF0\x9F\xA7\xAC",
                                      "\xFF\xFE",
                                      "\t1"};
  static constexpr std::array kLines{"---",      "...",   "%YAML 9.9", "%TAG ! !",    "<<: *a",
                                     "? [a, b]", "- a",   "\tx: 1",    "seed: 1e3",   "extends: x.y",
                                     "x.y.z: 1", ": 1",   "''",        "!!map",       "{",
                                     "]",        "a: &b", "model: *b", "\xEF\xBB\xBF"};

  void edit_line(std::string& text) {
    std::vector<std::string> lines = split_lines(text);
    if (lines.empty()) lines.emplace_back();
    const size_t at = below(lines.size());
    std::string& line = lines[at];
    const size_t colon = line.find(':');
    switch (below(12)) {
      case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 1: lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(below(lines.size())), std::string(line)); break;
      case 2: std::swap(line, lines[below(lines.size())]); break;
      case 3: line.insert(0, 1 + below(3), ' '); break;
      case 4: line.erase(0, 1 + below(2)); break;
      case 5: line.insert(0, "\t"); break;
      case 6: line.insert(0, kLines[below(kLines.size())] + std::string("\n")); break;
      case 7: {  // deep: inline or over many lines
        const size_t depth = 1 + below(2000);
        if (below(2) == 0) {
          line = "deep: " + std::string(depth, below(2) == 0 ? '[' : '{');
        } else {
          std::string nest;
          for (size_t i = 0; i < std::min<size_t>(depth, 300); ++i) nest += std::string(i, ' ') + "a:\n";
          line += "\n" + nest;
        }
        break;
      }
      case 8: line += std::string(1 + below(20000), "x \t,:#"[below(6)]); break;
      case 9: line.insert(0, std::string(1 + below(5000), 'k') + ": 1\n"); break;
      default:
        if (colon == std::string::npos) break;
        line = line.substr(0, colon + 1) + " " + kValues[below(kValues.size())];
    }
    text = joined(lines);
  }

  void edit_bytes(std::string& text) {
    if (text.empty()) text = "\n";
    const size_t at = below(text.size());
    switch (below(5)) {
      case 0: text.resize(at); break;
      case 1: text[at] = static_cast<char>(below(256)); break;
      case 2: text.erase(at, 1 + below(8)); break;
      case 3: text.insert(at, 1 + below(3), static_cast<char>(below(128))); break;
      case 4: text.insert(at, kValues[below(kValues.size())]); break;
    }
  }

  std::mt19937 random_;
};

}  // namespace esm::test
