// Training as a user meets it: files it leaves, expectations, mistakes, bad values on the way.
#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

TEST_CASE("a run leaves its config, metrics, log and checkpoints, and can be evaluated") {
  const ScratchFolder scratch("esm-train");
  const std::string config =
      tiny_config(scratch.path(), "train: {max_steps: 6}\ncheckpoint: {every_steps: 2, keep_last: 2}\n");
  const Finished done = run(train_command(config), in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  const std::string folder = scratch.path() + "/run";
  CHECK(metric_rows(folder).size() == 7);
  CHECK(fs::exists(folder + "/checkpoints/step-000000006/manifest.json"));
  CHECK_FALSE(fs::exists(folder + "/checkpoints/step-000000002"));
  CHECK_THAT(read_text_file(folder + "/train.log"), ContainsSubstring("step 6/6"));
  const Finished check = run({ESM_EXE, "config", "check", folder + "/config.yaml"}, in_repository());
  CHECK(check.exit_code == 0);

  const auto trained = nlohmann::json::parse(metric_rows(folder).at("valid 6"));
  const Finished eval = run({ESM_EXE, "eval", folder, "--data", "tests/data/protein/tiny_valid.fasta", "--json",
                             "--data.cache_dir", scratch.path() + "/cache"},
                            in_repository());
  INFO(eval.all());
  REQUIRE(eval.exit_code == 0);
  const auto evaluated = nlohmann::json::parse(eval.out);
  CHECK(evaluated["valid"]["data"]["loss"] == trained["valid"]["valid"]["loss"]);
  CHECK(evaluated["valid"]["data"]["accuracy"] == trained["valid"]["valid"]["accuracy"]);
  CHECK(evaluated["step"] == 6);
}

TEST_CASE("the manifest says what the bits depend on") {
  const ScratchFolder scratch("cli");
  const std::string config = tiny_config(scratch.path(), "train: {max_steps: 2, threads: 1}\n");
  REQUIRE(run(train_command(config, {"--deterministic", "true", "--device", "cpu"}), in_repository()).exit_code == 0);
  const auto manifest =
      nlohmann::json::parse(read_text_file(scratch.path() + "/run/checkpoints/step-000000002/manifest.json"));
  CHECK(manifest["kernels"]["device"] == "CPU");
  CHECK_FALSE(manifest["kernels"].contains("attention"));
}

TEST_CASE("expectations decide the exit code") {
  const ScratchFolder scratch("esm-train");
  const std::string config = tiny_config(scratch.path(), "train: {max_steps: 3}\n");
  const Finished unmet =
      run(train_command(config, {"--expect.valid_loss_below=1", "--expect.tokens_per_s_above=1e12"}), in_repository());
  CHECK(unmet.exit_code == 7);
  CHECK_THAT(unmet.err, ContainsSubstring("expect.valid_loss_below") && ContainsSubstring("expect.tokens_per_s_above"));
  const Finished met =
      run(train_command(config, {"--expect.valid_loss_below=5", "--expect.train_loss_below=5", "--resume=auto"}),
          in_repository());
  CHECK(met.exit_code == 0);
}

TEST_CASE("mistakes have one clear message and the documented code") {
  const ScratchFolder scratch("esm-train");
  const std::string config = tiny_config(scratch.path());
  const auto check = [&](std::vector<std::string> flags, int code, const std::string& text) {
    const Finished done = run(train_command(config, std::move(flags)), in_repository());
    INFO(done.all());
    CHECK(done.exit_code == code);
    CHECK_THAT(done.err, ContainsSubstring(text));
    CHECK_FALSE(fs::exists(scratch.path() + "/run/checkpoints/step-000000001"));
  };
  check({"--set", "train.max_stepps=3"}, 2, "train.max_steps");
  check({"--data.train", scratch.path() + "/none.fasta"}, 3, "none.fasta");
  check({"--init_from", scratch.path() + "/none"}, 6, "/none");
  check({"--optimizer.lr_multipliers", "{decoder: 2}"}, 2, "decoder");
  check({"--eval.monitor", "other"}, 2, "other");
  check({"--model.hidden", "30"}, 2, "multiple of 2 * heads");
  check({"--run.dir", "/proc/none"}, 3, "/proc/none");
}

TEST_CASE("two runs cannot share a folder") {
  const ScratchFolder scratch("esm-train");
  const std::string config = tiny_config(scratch.path(), "train: {max_steps: 100000}\n");
  Process first(train_command(config), in_repository());
  REQUIRE(first.wait_for("step 1/", 60));
  const Finished second = run(train_command(config, {"--resume=auto"}), in_repository());
  CHECK(second.exit_code == 2);
  CHECK_THAT(second.err, ContainsSubstring("another esmtrain is running"));
  first.send(SIGKILL);
  first.wait();
}

TEST_CASE("steps that are not finite leave the weights alone, and too many in a row stop the run") {
  const ScratchFolder scratch("esm-train");
  // The first update with this learning rate makes the second step overflow.
  const std::string config = tiny_config(scratch.path(), "train: {max_steps: 50, max_consecutive_skips: 3}\n");
  const Finished done =
      run(train_command(config, {"--schedule.kind=constant", "--schedule.warmup_steps=0", "--optimizer.lr=1e30"}),
          in_repository());
  INFO(done.all());
  CHECK(done.exit_code == 1);
  CHECK_THAT(done.err, ContainsSubstring("3 steps in a row were not finite"));
}

TEST_CASE("batches with nothing to predict add nothing") {
  const ScratchFolder scratch("esm-train");
  const std::string config = tiny_config(scratch.path(), "train: {max_steps: 30}\n");
  const Finished done =
      run(train_command(config, {"--data.train", "tests/data/oddities/fasta/tiny_peptides.fasta",
                                 "--data.tokens_per_batch=128", "--data.max_tokens=5", "--data.masking.rate=0.02"}),
          in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  int empty = 0;
  for (const auto& [key, row] : metric_rows(scratch.path() + "/run")) {
    const auto json = nlohmann::json::parse(row);
    if (!key.starts_with("step")) continue;
    if (json["scored"] == 0) {
      ++empty;
      CHECK(json["loss"].is_null());
      CHECK(json["skipped"] == true);
    } else {
      CHECK(json["loss"].is_number());
    }
  }
  CHECK(empty > 0);
}

TEST_CASE("the log of a run says why it ended") {
  const ScratchFolder scratch("esm-train");
  const Finished failed =
      run(train_command(tiny_config(scratch.path()), {"--data.train", "nosuch.fasta"}), in_repository());
  INFO(failed.all());
  CHECK(failed.exit_code == 3);
  CHECK_THAT(read_text_file(scratch.path() + "/run/train.log"), ContainsSubstring("error: cannot open nosuch.fasta"));
}

TEST_CASE("early stop, best checkpoint and several validation sets") {
  const ScratchFolder scratch("esm-train");
  const std::string config =
      tiny_config(scratch.path(),
                  "train: {max_steps: 40}\neval: {every_steps: 2, patience: 2, min_improvement: 10, monitor: b}\n"
                  "checkpoint: {every_steps: 0, keep_last: 1}\n");
  const Finished done = run(
      train_command(
          config, {"--data.valid", "{a: tests/data/protein/tiny_valid.fasta, b: tests/data/protein/tiny_train.fasta}"}),
      in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.err, ContainsSubstring("stopping early"));
  const auto rows = metric_rows(scratch.path() + "/run");
  const auto last = nlohmann::json::parse(rows.at("valid 6"));
  CHECK(last["valid"].size() == 2);
  CHECK_FALSE(rows.contains("step 7"));
  CHECK(fs::exists(scratch.path() + "/run/checkpoints/step-000000006"));

  // More steps alone do not bring it back; more patience does.
  const auto resume = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--resume", "auto", "--data.valid",
                             "{a: tests/data/protein/tiny_valid.fasta, b: tests/data/protein/tiny_train.fasta}"});
    const Finished again = run(train_command(config, more), in_repository());
    INFO(again.all());
    REQUIRE(again.exit_code == 0);
    return again.err;
  };
  CHECK_THAT(resume({"--train.max_steps=50", "--schedule.total_steps=40"}),
             ContainsSubstring("stopped early); give a larger eval.patience to go on"));
  CHECK_THAT(resume({"--eval.patience=4"}), ContainsSubstring("stopping early: 4 validations"));
  CHECK(metric_rows(scratch.path() + "/run").contains("step 10"));
}
