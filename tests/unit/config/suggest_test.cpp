#include "config/suggest.h"

#include <algorithm>
#include <cctype>
#include <random>

#include "sample_config.h"
#include "support/catch.h"

using esm::config::did_you_mean;
using esm::config::edit_distance;
using esm::config::suggest;

TEST_CASE("edit distance counts a swap of neighbours as one") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("steps", "stepps") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("suggestions know typing mistakes and misplaced keys") {
  const std::vector<std::string> names{"seed", "optimizer.lr", "optimizer.weight_decay", "train.max_steps",
                                       "schedule.warmup_steps"};
  CHECK(suggest("train.max_stepps", names) == std::vector<std::string>{"train.max_steps"});
  CHECK(suggest("Optimizer.LR", names).front() == "optimizer.lr");
  CHECK(suggest("optimizer.weight-decay", names).front() == "optimizer.weight_decay");
  CHECK(suggest("lr", names).front() == "optimizer.lr");
  CHECK(suggest("train.seed", names).front() == "seed");
  CHECK(suggest("optimizer.warmup_steps", names).front() == "schedule.warmup_steps");
  CHECK(suggest("v", {"n", "f"}).empty());
  CHECK(suggest("quite_another_thing", names).empty());
  CHECK(suggest(std::string(100000, 'x'), names).empty());
  CHECK(did_you_mean({}).empty());
  CHECK(did_you_mean({"a"}) == "; did you mean a?");
  CHECK(did_you_mean({"a", "b", "c"}) == "; did you mean a, b or c?");
}

namespace {

/// One way of getting one key of a config wrong, after typos.tsv. Returns the new lines, or nothing when the way does
/// not apply to this key or gives a valid config.
struct Line {
  std::string key;      // last part
  std::string full;     // dotted
  std::string section;  // dotted, "" at the top
  size_t index;         // line number in the file, from 0
  size_t indent;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

std::vector<Line> keys_of(const std::vector<std::string>& lines) {
  std::vector<Line> result;
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

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("500 random single-key typos: all refused, and the right key is among the suggestions in 90 of 100") {
  const std::vector<std::string> good = split_lines(sample::kGoodYaml);
  const std::vector<Line> keys = keys_of(good);
  std::vector<std::string> known;
  for (const auto& entry : esm::config::entries(sample::Config{})) known.push_back(entry.key);
  REQUIRE(sample::error_of(joined(good)).empty());
  REQUIRE(keys.size() == 27);
  // The ways of typos.tsv.

  std::mt19937 random(20261130);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int tried = 0, refused = 0, suggested = 0;
  while (tried < 500) {
    const Line& line = keys[below(keys.size())];
    std::string key = line.key;
    std::vector<std::string> lines = good;
    const std::string value = lines[line.index].substr(lines[line.index].find(':'));
    std::string new_line;
    size_t where = line.index;
    switch (below(8)) {
      case 0: key.pop_back(); break;
      case 1: {
        const size_t i = below(key.size());
        key.insert(i, 1, key[i]);
        break;
      }
      case 2: {
        if (key.size() < 2) continue;
        const size_t i = below(key.size() - 1);
        std::swap(key[i], key[i + 1]);
        break;
      }
      case 3: std::replace(key.begin(), key.end(), '_', '-'); break;
      case 4: key[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(key[0]))); break;
      case 5: key[below(key.size())] = static_cast<char>('a' + below(26)); break;
      case 6:  // one level too high: in front of its section
        if (line.section.empty()) continue;
        while (lines[where].find_first_not_of(' ') >= line.indent) --where;
        new_line = std::string(line.indent - 2, ' ') + key + value;
        break;
      case 7:  // one level too deep
        new_line = std::string(line.indent, ' ') + "inner:\n" + std::string(line.indent + 2, ' ') + key + value;
        break;
    }
    const std::string full = line.section.empty() ? key : line.section + "." + key;
    if (new_line.empty() && std::find(known.begin(), known.end(), full) != known.end()) continue;  // no mistake
    if (new_line.empty()) new_line = std::string(line.indent, ' ') + key + value;
    lines[line.index].clear();
    if (where == line.index)
      lines[where] = new_line;
    else
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(where), new_line);
    std::erase(lines, std::string());

    ++tried;
    const std::string error = sample::error_of(joined(lines));
    refused += !error.empty();
    const size_t hint = error.find("did you mean");
    const bool hit = hint != std::string::npos && (error.find(" " + line.full + "?", hint) != std::string::npos ||
                                                   error.find(" " + line.full + ",", hint) != std::string::npos ||
                                                   error.find(" " + line.full + " or", hint) != std::string::npos);
    suggested += hit;
  }
  CAPTURE(suggested);
  CHECK(refused == tried);
  CHECK(suggested >= tried * 9 / 10);
}

TEST_CASE("kinds that do not fit are refused for every key") {
  // "a map where a number is wanted, a number where a map is wanted, an unknown section"
  const std::vector<std::string> good = split_lines(sample::kGoodYaml);
  for (const Line& line : keys_of(good)) {
    if (line.full == "data.valid") continue;  // takes a map
    std::vector<std::string> lines = good;
    lines[line.index] = std::string(line.indent, ' ') + line.key + ": {inner: 1}";
    INFO(line.full);
    CHECK_THAT(sample::error_of(joined(lines)), ContainsSubstring(line.full + ": expected"));
  }
  for (const char* section : {"run", "data", "model", "optimizer", "train", "checkpoint"})
    CHECK_THAT(sample::error_of(fmt::format("{}: 3\n", section)), ContainsSubstring("expected a section"));
  CHECK_THAT(sample::error_of("data:\n  valid: 3\n"), ContainsSubstring("data.valid: expected"));
  CHECK_THAT(sample::error_of(std::string(sample::kGoodYaml) + "extra:\n  key: 1\n"),
             ContainsSubstring("unknown key extra"));
}
