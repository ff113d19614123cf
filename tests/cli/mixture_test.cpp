// Mixtures of training sets through the built program: shares, counts, exact resume, errors.
#include <algorithm>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

const std::string kMixture =
    "  train: {mine: tests/data/protein/tiny_valid.fasta, uniref: tests/data/protein/tiny_train.fasta}\n"
    "  weights: {mine: 1, uniref: 3}\n";

/// The tiny config with `sets` in place of its data.train.
std::string mixed_config(const std::string& folder, const std::string& sets, const std::string& more = "") {
  const std::string path = tiny_config(folder, more);
  std::string text = read_text_file(path);
  const size_t train = text.find("  train: ");
  text.replace(train, text.find('\n', train) + 1 - train, sets);
  write_file_atomically(path, text);
  return path;
}

}  // namespace

TEST_CASE("a mixture resumes bit for bit and says what it drew") {
  const std::string settings = "eval: {every_steps: 4}\ncheckpoint: {every_steps: 4}\n";
  const auto check = [&](const std::string& sets, int cut, const std::vector<std::string>& flags) {
    const ScratchFolder a("esm-straight"), b("esm-resumed");
    const auto train = [&](const ScratchFolder& folder, std::vector<std::string> extra) {
      extra.insert(extra.end(), flags.begin(), flags.end());
      Finished done = run(train_command(mixed_config(folder.path(), sets, settings), extra), in_repository());
      INFO(done.all());
      REQUIRE(done.exit_code == 0);
      return done.err;
    };
    const std::string log = train(a, {"--train.max_steps=12"});
    train(b, {fmt::format("--train.max_steps={}", cut), "--schedule.total_steps=12"});
    const std::string resumed_log = train(b, {"--train.max_steps=12", "--resume", "auto"});
    auto straight = metric_rows(a.path() + "/run"), resumed = metric_rows(b.path() + "/run");
    if (cut % 4 != 0) resumed.erase(fmt::format("valid {}", cut));
    CHECK(straight == resumed);
    const auto drawn = nlohmann::json::parse(straight.at("valid 8")).at("drawn");
    CHECK(drawn.at("mine").at("sequences") > 0);
    CHECK(drawn.at("uniref").at("tokens") > drawn.at("mine").at("tokens"));
    CHECK(tensor_hashes(a.path() + "/run", 12) == tensor_hashes(b.path() + "/run", 12));
    return std::pair(log, resumed_log);
  };
  const auto [log, resumed] = check(kMixture, 7, {"--train.micro_batches=4"});
  CHECK_THAT(log, ContainsSubstring("mine: 25.00 %") && ContainsSubstring("uniref: 75.00 %"));
  CHECK_THAT(log, ContainsSubstring("training data 'mine'") && ContainsSubstring("training data 'uniref'"));
  // The same counts after a resume.
  const auto last_line = [](const std::string& text) {
    const size_t at = text.rfind("step 12  drawn so far: ");
    REQUIRE(at != std::string::npos);
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(last_line(log) == last_line(resumed));
  CHECK_THAT(last_line(log), ContainsSubstring("mine ") && ContainsSubstring("; uniref "));
  check(kMixture, 6, {"--data.loader_threads=3"});
}

TEST_CASE("a mixture that is not one is refused with the place in the file") {
  const ScratchFolder scratch("esm-cli-mixture");
  const auto check = [&](const std::string& weights, const std::string& expected) {
    const std::string sets = kMixture.substr(0, kMixture.find("  weights")) + "  weights: " + weights + "\n";
    const Finished done = run(train_command(mixed_config(scratch.path(), sets)), in_repository());
    INFO(done.all());
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, ContainsSubstring("tiny.yaml:") && ContainsSubstring(expected));
  };
  check("{mine: 1, unirf: 3}", "data.weights: there is no set 'unirf' in data.train, only mine, uniref");
  check("{mine: 1}", "data.weights: the set 'uniref' of data.train has no weight");
  check("{mine: 0, uniref: 1}", "data.weights: expected a number above 0 for 'mine', found 0");
  check("{mine: -2, uniref: 1}", "data.weights: expected a number above 0 for 'mine', found -2");
  check("{mine: much, uniref: 1}", "data.weights: mine: expected a number");
  // Programs that need no training data take such a config as it is.
  const std::string config = mixed_config(scratch.path(), kMixture, "train: {max_steps: 2}\n");
  const Finished plan = run({ESM_EXE, "plan", config}, in_repository());
  INFO(plan.all());
  CHECK(plan.exit_code == 0);
  REQUIRE(run(train_command(config), in_repository()).exit_code == 0);
  const Finished eval =
      run({ESM_EXE, "eval", scratch.path() + "/run", "--data", "tests/data/protein/tiny_valid.fasta"}, in_repository());
  INFO(eval.all());
  CHECK(eval.exit_code == 0);
}
