// Enough of an XML parser to tell whether a picture of ours is well-formed.
#pragma once
#include <regex>
#include <string>
#include <vector>

namespace esm::test {

/// "" when `text` is one element with balanced tags, quoted attributes (each name once) and known entities; else what
/// is wrong. No declaration, comments or CDATA.
inline std::string xml_problem(const std::string& text) {
  static const std::regex kTag(
      R"re(^<(/?)([A-Za-z][A-Za-z0-9]*)((?:\s+[A-Za-z][A-Za-z0-9:-]*="[^"<&]*(?:&(?:amp|lt|gt|quot);[^"<&]*)*")*)\s*(/?)>)re");
  static const std::regex kText(R"re(^(?:[^<&>]|&(?:amp|lt|gt|quot);)+)re");
  static const std::regex kName(R"re(\s([A-Za-z][A-Za-z0-9:-]*)=)re");
  std::vector<std::string> open;
  bool closed = false;
  for (size_t at = 0; at < text.size();) {
    const std::string rest = text.substr(at, 2000);
    const std::string where = " at: " + rest.substr(0, 80);
    std::smatch match;
    if (rest[0] != '<') {
      if (!std::regex_search(rest, match, kText)) return "a stray character" + where;
      if (open.empty() && match.str().find_first_not_of(" \n") != std::string::npos) return "text outside" + where;
      at += match.str().size();
      continue;
    }
    if (!std::regex_search(rest, match, kTag)) return "no tag" + where;
    if (open.empty() && closed) return "a second root" + where;
    const std::string name = match[2], attributes = match[3];
    std::vector<std::string> names;
    for (std::sregex_iterator i(attributes.begin(), attributes.end(), kName), end; i != end; ++i) {
      for (const std::string& other : names)
        if (other == (*i)[1]) return "twice " + other + where;
      names.push_back((*i)[1]);
    }
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != name) return "unbalanced " + name + where;
      open.pop_back();
    } else if (match[4].length() == 0) {
      open.push_back(name);
    }
    closed = closed || open.empty();
    at += match.str().size();
  }
  return open.empty() ? (closed ? "" : "empty") : "not closed: " + open.back();
}

}  // namespace esm::test
