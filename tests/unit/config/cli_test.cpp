#include "config/cli.h"

#include "base/error.h"
#include "sample_config.h"
#include "support/catch.h"

using esm::config::Override;
using esm::config::parse_arguments;
using esm::config::SettingName;
using Words = std::vector<std::string>;

namespace {

const std::vector<esm::config::OwnOption> kOwn{{"--resume", true}, {"--json", false}};
const std::vector<SettingName> kSettings{{"seed"}, {"train.max_steps"}, {"optimizer.lr"}, {"data.valid", true}};

std::string error_of(const Words& words) {
  try {
    parse_arguments(words, kOwn, kSettings);
  } catch (const esm::ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("settings, own options and positionals are told apart and keep their order") {
  const auto given =
      parse_arguments({"a.yaml", "--set", "seed=3", "--json", "--train.max_steps", "20", "--resume", "auto",
                       "--set=optimizer.lr=1=2", "--seed=", "--optimizer.lr", "-1e-4", "b", "-", "--resume=x"},
                      kOwn, kSettings);
  CHECK(given.positionals == Words{"a.yaml", "b", "-"});
  CHECK(given.options ==
        std::vector<std::pair<std::string, std::string>>{{"--json", ""}, {"--resume", "auto"}, {"--resume", "x"}});
  REQUIRE(given.overrides.size() == 5);
  CHECK(given.overrides[0] == Override{"seed", "3", "--set seed=3"});
  CHECK(given.overrides[1] == Override{"train.max_steps", "20", "--train.max_steps 20"});
  CHECK(given.overrides[2] == Override{"optimizer.lr", "1=2", "--set optimizer.lr=1=2"});
  CHECK(given.overrides[3] == Override{"seed", "", "--seed="});
  CHECK(given.overrides[4] == Override{"optimizer.lr", "-1e-4", "--optimizer.lr -1e-4"});
}

TEST_CASE("names of a map field are settings too") {
  const auto given = parse_arguments({"--data.valid.main", "a.fasta", "--data.valid=[b]"}, kOwn, kSettings);
  CHECK(given.positionals.empty());
  REQUIRE(given.overrides.size() == 2);
  CHECK(given.overrides[0].key == "data.valid.main");
  CHECK(given.overrides[1].value == "[b]");
  CHECK_THAT(error_of({"--seed.main", "1"}), ContainsSubstring("unknown option --seed.main"));
  CHECK_THAT(error_of({"--data.validx", "1"}), ContainsSubstring("did you mean --data.valid?"));
}

TEST_CASE("a lone -- ends the options") {
  const auto given = parse_arguments({"--json", "--", "--seed", "3", "-x", "--"}, kOwn, kSettings);
  CHECK(given.positionals == Words{"--seed", "3", "-x", "--"});
  CHECK(given.options.size() == 1);
  CHECK(given.overrides.empty());
}

TEST_CASE("what is unknown or incomplete is refused, with the nearest names") {
  CHECK(error_of({"--train.max_stepps", "3"}) == "unknown option --train.max_stepps; did you mean --train.max_steps?");
  CHECK_THAT(error_of({"--train.max-steps=3"}), ContainsSubstring("did you mean --train.max_steps?"));
  CHECK_THAT(error_of({"--resum", "auto"}), ContainsSubstring("did you mean --resume?"));
  CHECK_THAT(error_of({"--lr", "1"}), ContainsSubstring("did you mean --optimizer.lr?"));
  CHECK_THAT(error_of({"--seed"}), ContainsSubstring("--seed: expected a value, found the end of the command line"));
  CHECK_THAT(error_of({"--seed", "--json"}), ContainsSubstring("--seed: expected a value, found --json"));
  CHECK_THAT(error_of({"--resume", "--seed", "3"}), ContainsSubstring("--resume: expected a value, found --seed"));
  CHECK_THAT(error_of({"--json=1"}), ContainsSubstring("--json: expected no value"));
  CHECK_THAT(error_of({"-j"}), ContainsSubstring("unknown option -j"));
  CHECK_THAT(error_of({"--set"}), ContainsSubstring("--set: expected key=value"));
  CHECK_THAT(error_of({"--set", "seed"}), ContainsSubstring("--set seed: expected key=value"));
  CHECK_THAT(error_of({"--set", "=3"}), ContainsSubstring("expected key=value"));
}

TEST_CASE("YAML and command line give the same config") {
  sample::Config from_file, from_line;
  esm::config::load_text(from_file, sample::kGoodYaml, "x.yaml");
  std::vector<Override> overrides;
  for (const auto& entry : esm::config::entries(from_file))
    overrides.push_back(sample::set(
        entry.key, entry.key.starts_with("run.") ? (entry.key == "run.dir" ? "runs/a" : "first try") : entry.value));
  esm::config::load(from_line, "", overrides);
  CHECK(from_line == from_file);
  CHECK_FALSE(from_line == sample::Config{});
}
