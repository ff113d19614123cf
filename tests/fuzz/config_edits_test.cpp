// The shipped configs, changed at random: never anything but success or an error with its place.
#include "support/config_edits.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "base/files.h"
#include "config/config.h"
#include "support/catch.h"
#include "train/run_config.h"

using esm::ConfigError;
using esm::test::ConfigEdits;
using esm::test::KeyLine;
using esm::train::RunConfig;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> shipped_configs() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(ESM_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string error_of(const std::string& text) {
  RunConfig config;
  try {
    esm::config::load_text(config, text, "x.yaml");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

/// Every line of a message says where: a file with its line, or a default that no longer fits.
bool has_places(const std::string& message) {
  const std::vector<std::string> lines = esm::test::split_lines(message);
  const size_t first = lines.size() > 1 ? 1 : 0;  // "N errors in the configuration:"
  return std::all_of(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end(), [](const std::string& line) {
    const size_t at = line.find(".yaml:");
    const bool numbered = at != std::string::npos && std::isdigit(static_cast<unsigned char>(line[at + 6])) != 0;
    return numbered || line.find("(the default;") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("2,000 random edits of the shipped configs: accepted, or refused with file and line") {
  const esm::ScratchFolder scratch("config-edits");
  std::vector<std::string> names, texts;
  for (const std::string& path : shipped_configs()) {
    names.push_back(scratch.path() + "/" + fs::path(path).filename().string());
    texts.push_back(esm::read_text_file(path));
    put(names.back(), texts.back());
  }
  REQUIRE(names.size() >= 10);
  ConfigEdits edits(20261201);
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t which = static_cast<size_t>(trial) % names.size();
    const std::string text = edits.broken(texts[which]);
    put(names[which], text);
    RunConfig config;
    std::string message;
    try {
      esm::config::load(config, names[which]);
    } catch (const ConfigError& e) {
      message = e.what();
    }
    put(names[which], texts[which]);
    refused += message.empty() ? 0 : 1;
    INFO("trial " << trial << " of " << names[which] << "\n" << message.substr(0, 2000));
    if (!message.empty()) CHECK(has_places(message));
    if (message.empty()) CHECK(error_of(esm::config::to_yaml(config)).empty());
  }
  // Both outcomes are common: the edits neither spare nor ruin everything.
  CHECK(refused > 1000);
  CHECK(refused < 1900);
}

TEST_CASE("1,000 single-key typos of every key there is: all refused, 90 of 100 with the right key suggested") {
  RunConfig config;
  esm::config::load(config, ESM_SOURCE_DIR "/configs/smoke.yaml");
  const std::vector<std::string> good = esm::test::split_lines(esm::config::to_yaml(config));
  const std::vector<KeyLine> keys = esm::test::keys_of(good);
  std::set<std::string> known;
  for (const auto& entry : esm::config::entries(config)) known.insert(entry.key);
  REQUIRE(error_of(esm::test::joined(good)).empty());
  REQUIRE(keys.size() == known.size());

  ConfigEdits edits(20261130);
  int tried = 0, refused = 0, suggested = 0;
  std::string without;
  while (tried < 1000) {
    const ConfigEdits::Typo typo = edits.typo(good, keys[edits.below(keys.size())]);
    if (typo.text.empty() || known.contains(typo.written)) continue;  // no mistake
    ++tried;
    const std::string error = error_of(typo.text);
    INFO(typo.written << " for " << typo.meant);
    CHECK_FALSE(error.empty());
    refused += error.empty() ? 0 : 1;
    const size_t hint = error.find("did you mean");
    const auto names = [&](const char* end) { return error.find(" " + typo.meant + end, hint) != std::string::npos; };
    const bool hit = hint != std::string::npos && (names("?") || names(",") || names(" or"));
    suggested += hit ? 1 : 0;
    if (!hit) without += typo.written + " for " + typo.meant + "\n";
  }
  INFO(suggested << " of " << tried << "; without the right suggestion:\n" << without);
  CHECK(refused == tried);
  CHECK(suggested >= tried * 9 / 10);
}
