// Configs through the built program: exit codes, messages, equality of the ways to say the same.
#include <map>

#include "base/files.h"
#include "cli/process.h"
#include "support/catch.h"
#include "support/config_edits.h"

using esm::ScratchFolder;
using esm::write_file_atomically;
using esm::test::Finished;

namespace {

const std::string kOddities = ESM_SOURCE_DIR "/tests/data/oddities/config/";

Finished esmtrain(std::vector<std::string> arguments, const std::string& folder = "") {
  arguments.insert(arguments.begin(), ESM_EXE);
  return esm::test::run(std::move(arguments), {.folder = folder});
}

/// The least that a config needs.
constexpr char kSmall[] = R"(seed: 7
run: {dir: runs/small}
data:
  train: a.fasta
  valid: {main: b.fasta, other: [c.fasta, d.fasta]}
  tokens_per_batch: 1024
model: {layers: 2, hidden: 64, heads: 4}
optimizer:
  lr: 1e-3
train:
  max_steps: 20
)";

/// Nothing went wrong inside: one message, no crash.
void check_refused(const Finished& done, int exit_code) {
  INFO(done.all());
  CHECK(done.exit_code == exit_code);
  CHECK(done.out.empty());
  CHECK(done.err.starts_with("esmtrain: error: "));
  CHECK(done.err.find("frame #") == std::string::npos);
  CHECK(done.err.find("terminate called") == std::string::npos);
}

}  // namespace

TEST_CASE("a mistyped key, a wrong type and a missing config exit with 2 and name the place") {
  const ScratchFolder scratch("cli-config");
  write_file_atomically(scratch.path() + "/small.yaml", kSmall);
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "small.yaml"});
    return esmtrain(more, scratch.path());
  };
  const Finished typo = train({"--set", "train.max_stepps=3"});
  check_refused(typo, 2);
  CHECK_THAT(typo.err, ContainsSubstring(
                           "--set train.max_stepps=3: unknown key train.max_stepps; did you mean train.max_steps?"));
  const Finished option = train({"--train.max-steps", "3"});
  check_refused(option, 2);
  CHECK_THAT(option.err,
             ContainsSubstring("--train.max-steps") && ContainsSubstring("did you mean --train.max_steps?"));
  const Finished type = train({"--set", "train.max_steps=abc"});
  check_refused(type, 2);
  CHECK_THAT(type.err, ContainsSubstring("train.max_steps: expected an integer, found 'abc'"));
  const Finished missing = esmtrain({"train", "none.yaml"}, scratch.path());
  check_refused(missing, 2);
  CHECK_THAT(missing.err, ContainsSubstring("none.yaml: No such file"));
  const Finished resume = train({"--resum", "auto"});
  check_refused(resume, 2);
  CHECK_THAT(resume.err, ContainsSubstring("did you mean --resume?"));
  const Finished nothing = esmtrain({"train"});
  check_refused(nothing, 2);
  CHECK_THAT(nothing.err, ContainsSubstring("CONFIG is missing"));
  const Finished second = train({"second.yaml"});
  check_refused(second, 2);
  CHECK_THAT(second.err, ContainsSubstring("'second.yaml' is one argument too many"));
}

TEST_CASE("config check lists every error, or says ok") {
  const ScratchFolder scratch("cli-config");
  write_file_atomically(scratch.path() + "/good.yaml", kSmall);
  write_file_atomically(scratch.path() + "/bad.yaml",
                        "seed: x\ntrian: {max_steps: 3}\nmodel: {layers: 0}\noptimizer:\n  lr: 1e-3\n  lr: 1e-4\n");
  const Finished good = esmtrain({"config", "check", "good.yaml"}, scratch.path());
  INFO(good.all());
  CHECK(good.exit_code == 0);
  CHECK(good.out == "ok\n");
  const Finished bad = esmtrain({"config", "check", "bad.yaml", "--precision", "fp7"}, scratch.path());
  check_refused(bad, 2);
  for (const char* part :
       {"bad.yaml:1: seed: expected an integer, found 'x'", "bad.yaml:2: unknown key trian; did you mean train",
        "bad.yaml:3: model.layers: expected from 1 to 10000, found 0",
        "bad.yaml:6: optimizer.lr: the key is given twice, first in line 5",
        "--precision fp7: precision: expected one of", "data.train: expected"})
    CHECK_THAT(bad.err, ContainsSubstring(part));
}

TEST_CASE("config show prints a config that shows the same again") {
  const ScratchFolder scratch("cli-config");
  write_file_atomically(scratch.path() + "/small.yaml", kSmall);
  const Finished first = esmtrain({"config", "show", "small.yaml"}, scratch.path());
  INFO(first.all());
  REQUIRE(first.exit_code == 0);
  CHECK_THAT(first.out, ContainsSubstring("seed: 7\n") && ContainsSubstring("  lr: 0.001\n"));
  write_file_atomically(scratch.path() + "/shown.yaml", first.out);
  CHECK(esmtrain({"config", "show", "shown.yaml"}, scratch.path()).out == first.out);

  const Finished origins = esmtrain({"config", "show", "small.yaml", "--origins", "--seed", "8"}, scratch.path());
  CHECK_THAT(origins.out, ContainsSubstring("seed: 8  # --seed 8\n") &&
                              ContainsSubstring("  lr: 0.001  # small.yaml:9\n") &&
                              ContainsSubstring("  weight_decay: 0.01  # default\n"));
  write_file_atomically(scratch.path() + "/origins.yaml", origins.out);
  CHECK(esmtrain({"config", "check", "origins.yaml"}, scratch.path()).exit_code == 0);
}

TEST_CASE("YAML, --set, --key value, --key=value and extends resolve to the same config") {
  const ScratchFolder scratch("cli-config");
  write_file_atomically(scratch.path() + "/small.yaml", kSmall);
  write_file_atomically(scratch.path() + "/empty.yaml", "seed: 1\n");
  write_file_atomically(scratch.path() + "/base.yaml",
                        "seed: 1\nmodel: {layers: 9, heads: 4}\ndata: {train: a.fasta, tokens_per_batch: 1024}\n");
  write_file_atomically(scratch.path() + "/extended.yaml",
                        "extends: base.yaml\nseed: 7\nrun: {dir: runs/small}\n"
                        "data: {valid: {main: b.fasta, other: [c.fasta, d.fasta]}}\n"
                        "model: {layers: 2, hidden: 64}\noptimizer: {lr: 1e-3}\ntrain: {max_steps: 20}\n");
  const std::vector<std::pair<std::string, std::string>> settings{{"seed", "7"},
                                                                  {"run.dir", "runs/small"},
                                                                  {"data.train", "a.fasta"},
                                                                  {"data.valid.other", "[c.fasta, d.fasta]"},
                                                                  {"data.valid.main", "b.fasta"},
                                                                  {"data.tokens_per_batch", "1024"},
                                                                  {"model.layers", "2"},
                                                                  {"model.hidden", "64"},
                                                                  {"model.heads", "4"},
                                                                  {"optimizer.lr", "1e-3"},
                                                                  {"train.max_steps", "2e1"}};
  std::map<std::string, std::vector<std::string>> ways;
  for (const auto& [key, value] : settings) {
    ways["--set"].insert(ways["--set"].end(), {"--set", key + "=" + value});
    ways["--key value"].insert(ways["--key value"].end(), {"--" + key, value});
    ways["--key=value"].push_back("--" + key + "=" + value);
  }
  const std::string expected = esmtrain({"config", "show", "small.yaml"}, scratch.path()).out;
  REQUIRE_THAT(expected, ContainsSubstring("layers: 2\n"));
  CHECK(esmtrain({"config", "show", "extended.yaml"}, scratch.path()).out == expected);
  for (const auto& [name, arguments] : ways) {
    std::vector<std::string> all{"config", "show", "empty.yaml"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    INFO(name);
    CHECK(esmtrain(all, scratch.path()).out == expected);
  }
}

TEST_CASE("odd config files have their documented outcome") {
  const std::map<std::string, std::string> refused{
      {"tab_indent.yaml", "tab_indent.yaml:2:1: a tab"},
      {"duplicate_key.yaml", "duplicate_key.yaml:3: optimizer.lr: the key is given twice, first in line 2"},
      {"empty.yaml", "empty.yaml:1: expected"},
      {"list_at_top.yaml", "list_at_top.yaml:1: expected a map"}};
  for (const auto& [name, message] : refused) {
    const Finished done = esmtrain({"config", "check", kOddities + name, "--data.train", "a.fasta"});
    check_refused(done, 2);
    CHECK_THAT(done.err, ContainsSubstring(message));
  }
  const Finished bom = esmtrain({"config", "show", kOddities + "bom_crlf.yaml", "--data.train", "a.fasta"});
  CHECK(bom.exit_code == 0);
  CHECK_THAT(bom.out, ContainsSubstring("seed: 7\n"));
}

TEST_CASE("50 random edits of a config: exit code 0 or 2, one message, no crash and no hang") {
  const ScratchFolder scratch("cli-config");
  esm::test::ConfigEdits edits(50);
  for (int trial = 0; trial < 50; ++trial) {
    write_file_atomically(scratch.path() + "/edited.yaml", edits.broken(kSmall));
    const Finished done = esmtrain({"config", "check", "edited.yaml"}, scratch.path());
    INFO("trial " << trial);
    if (done.exit_code == 0)
      CHECK(done.out == "ok\n");
    else
      check_refused(done, 2);
  }
}
