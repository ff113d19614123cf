// A run that is stopped, killed or resumed equals the run that was left alone: every loss and every tensor, bit for
// bit.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "support/catch.h"
#include "tests/cli/odd_disk.h"

using namespace esm;
using namespace esm::test;

namespace {

constexpr int kSteps = 12;

/// fp8.jsonl, which holds no wall-clock figures; empty where there is none.
std::string statistics(const ScratchFolder& folder) {
  const std::string path = folder.path() + "/run/fp8.jsonl";
  return std::filesystem::exists(path) ? read_text_file(path) : "";
}

// A straight run against one that is cut at `cut` steps and resumed; both with `flags`.
void check_resume(const std::vector<std::string>& flags, int cut) {
  CAPTURE(flags, cut);
  const ScratchFolder a("esm-straight"), b("esm-resumed");
  const std::string settings = "eval: {every_steps: 4}\ncheckpoint: {every_steps: 4, keep_last: 3}\n";
  const auto train = [&](const ScratchFolder& folder, std::vector<std::string> extra) {
    for (const auto& flag : flags) extra.push_back(flag);
    const Finished done = run(train_command(tiny_config(folder.path(), settings), extra), in_repository());
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
  };
  train(a, {fmt::format("--train.max_steps={}", kSteps)});
  train(b, {fmt::format("--train.max_steps={}", cut), fmt::format("--schedule.total_steps={}", kSteps)});
  train(b, {fmt::format("--train.max_steps={}", kSteps), "--resume", "auto"});
  auto straight = metric_rows(a.path() + "/run"), resumed = metric_rows(b.path() + "/run");
  // The cut run validates at its own end too.
  if (cut % 4 != 0) resumed.erase(fmt::format("valid {}", cut));
  CHECK(straight == resumed);
  CHECK(straight.size() == kSteps + kSteps / 4);
  CHECK(tensor_hashes(a.path() + "/run", kSteps) == tensor_hashes(b.path() + "/run", kSteps));
  CHECK(statistics(a) == statistics(b));
}

}  // namespace

TEST_CASE("resume equals the straight run bit for bit") {
  // 256 short sequences in packs of 512 tokens: an epoch takes about 60 packs, so this is mid-epoch; then epochs
  // change.
  check_resume({}, 5);
  check_resume({"--precision=bf16"}, 8);
  check_resume({"--train.micro_batches=3", "--train.recompute=full"}, 7);
  check_resume({"--train.micro_batches=12", "--data.loader_threads=0"}, 6);
  check_resume({"--optimizer.moments=bf16"}, 6);
  check_resume({"--precision=bf16", "--optimizer.master=bf16_remainder", "--optimizer.moments=bf16"}, 5);
  check_resume({"--precision=bf16", "--optimizer.master=bf16", "--optimizer.moments=fp8"}, 7);
}

TEST_CASE("resume with quantized products equals the straight run bit for bit, statistics too") {
  const auto check = [](std::vector<std::string> flags, int cut) {
    flags.insert(flags.end(), {"--model.layers=2", "--fp8.statistics_every_steps=3"});
    check_resume(flags, cut);
  };
  check({"--precision=fp8_delayed"}, 5);
  // The window of the history goes round before and after the cut.
  check({"--precision=fp8_delayed", "--fp8.history_steps=3", "--train.micro_batches=2"}, 7);
  check({"--precision=fp8_delayed", "--fp8.amax_choice=most_recent", "--fp8.margin=1", "--train.recompute=full"}, 8);
  check({"--precision=fp8_current"}, 6);
  check({"--precision=fp8_delayed", "--layer_precision={bf16: 1}"}, 5);
  check({"--precision=bf16", "--layer_precision={fp8_delayed: 1, fp8_current: 2}", "--train.micro_batches=2"}, 7);
  check({"--precision=nvfp4", "--layer_precision={fp8_block: 1}"}, 4);
  check({"--precision=fp8_delayed", "--optimizer.master=bf16", "--optimizer.moments=fp8"}, 7);
}

TEST_CASE("a signal under FP8: histories and statistics go on where they were") {
  const std::vector<std::string> flags{"--train.max_steps=100",   "--model.layers=2",
                                       "--precision=fp8_delayed", "--fp8.statistics_every_steps=3",
                                       "--run.log_every_steps=1", "--resume=auto"};
  const ScratchFolder a("esm-straight"), b("esm-stopped");
  REQUIRE(run(train_command(tiny_config(a.path()), flags), in_repository()).exit_code == 0);
  const auto command = train_command(tiny_config(b.path()), flags);
  Process process(command, in_repository());
  REQUIRE(process.wait_for("step 7/100", 60));
  process.send(SIGTERM);
  const Finished stopped = process.wait();
  INFO(stopped.all());
  CHECK(stopped.exit_code == 75);
  const Finished resumed = run(command, in_repository());
  INFO(resumed.all());
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.err.find("measures them") == std::string::npos);
  CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
  CHECK(tensor_hashes(a.path() + "/run", 100) == tensor_hashes(b.path() + "/run", 100));
  const std::string rows = statistics(a);
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 33);
  CHECK(rows == statistics(b));
}

TEST_CASE("results do not depend on loader threads, recompute, or on YAML against flags") {
  const ScratchFolder a("esm-a"), b("esm-b");
  const Finished first =
      run(train_command(tiny_config(a.path(), "train: {max_steps: 6, micro_batches: 2}\n")), in_repository());
  const Finished second =
      run(train_command(tiny_config(b.path()), {"--set", "train.max_steps=6", "--train.micro_batches", "2",
                                                "--data.loader_threads=3", "--train.recompute=selective"}),
          in_repository());
  INFO(first.all() + second.all());
  REQUIRE(first.exit_code == 0);
  REQUIRE(second.exit_code == 0);
  CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
  CHECK(tensor_hashes(a.path() + "/run", 6) == tensor_hashes(b.path() + "/run", 6));
}

TEST_CASE("signals save at the step border; the resumed run equals the straight one") {
  const ScratchFolder a("esm-straight");
  REQUIRE(run(train_command(tiny_config(a.path()), {"--train.max_steps=300"}), in_repository()).exit_code == 0);
  const auto expected = metric_rows(a.path() + "/run");
  for (const auto& [signal, code] : {std::pair{SIGTERM, 75}, {SIGUSR1, 75}, {SIGHUP, 75}, {SIGINT, 130}}) {
    CAPTURE(signal);
    const ScratchFolder b("esm-stopped");
    const auto command =
        train_command(tiny_config(b.path()), {"--train.max_steps=300", "--run.log_every_steps=1", "--resume=auto"});
    Process process(command, in_repository());
    REQUIRE(process.wait_for("step 3/300", 60));
    process.send(signal);
    process.send(signal);  // a second one right away must not abort the save
    const Finished stopped = process.wait();
    INFO(stopped.all());
    CHECK(stopped.exit_code == code);
    CHECK_THAT(stopped.err, ContainsSubstring("--resume auto"));
    REQUIRE(run(command, in_repository()).exit_code == 0);
    CHECK(metric_rows(b.path() + "/run") == expected);
    CHECK(tensor_hashes(a.path() + "/run", 300) == tensor_hashes(b.path() + "/run", 300));
  }
}

TEST_CASE("killed at random moments, a run still ends like the straight one") {
  const ScratchFolder a("esm-straight"), b("esm-killed");
  const std::string every = "checkpoint: {every_steps: 2}\n";
  REQUIRE(run(train_command(tiny_config(a.path(), every), {"--train.max_steps=60"}), in_repository()).exit_code == 0);
  const auto command = train_command(tiny_config(b.path(), every), {"--train.max_steps=60", "--resume=auto"});
  for (int i = 0; i < 8; ++i) {
    Process process(command, in_repository());
    process.wait_for(fmt::format("saved {}/run/checkpoints/step-", b.path()), 30);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * i));
    process.send(SIGKILL);
    process.wait();
  }
  REQUIRE(run(command, in_repository()).exit_code == 0);
  CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
}

TEST_CASE("a run folder is never started over, and a finished run says so") {
  const ScratchFolder scratch("esm-again");
  const std::string config = tiny_config(scratch.path());
  REQUIRE(run(train_command(config, {"--train.max_steps=2"}), in_repository()).exit_code == 0);
  const Finished again = run(train_command(config, {"--train.max_steps=2"}), in_repository());
  CHECK(again.exit_code == 2);
  CHECK_THAT(again.err, ContainsSubstring("--resume auto") && ContainsSubstring("step-000000002"));
  const Finished finished = run(train_command(config, {"--train.max_steps=2", "--resume=auto"}), in_repository());
  CHECK(finished.exit_code == 0);
  CHECK_THAT(finished.err, ContainsSubstring("nothing to do"));
  const Finished other =
      run(train_command(config, {"--train.max_steps=4", "--resume=auto", "--seed=4"}), in_repository());
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, ContainsSubstring("seed: 3 in the checkpoint, 4 now"));
  const Finished warned =
      run(train_command(config, {"--train.max_steps=4", "--resume=auto", "--optimizer.lr=2e-3"}), in_repository());
  CHECK(warned.exit_code == 0);
  CHECK_THAT(warned.err, ContainsSubstring("optimizer.lr: 0.001 in the checkpoint, 0.002 now"));
  const Finished none = run(train_command(config, {"--resume=" + scratch.path() + "/none"}), in_repository());
  CHECK(none.exit_code == 6);
}

TEST_CASE("a resume from an older checkpoint that cannot begin leaves the newer ones alone") {
  const ScratchFolder scratch("esm-older");
  const std::string config = tiny_config(scratch.path(), "checkpoint: {every_steps: 2, keep_last: 4}\n");
  REQUIRE(run(train_command(config, {"--train.max_steps=4"}), in_repository()).exit_code == 0);
  const std::string folder = scratch.path() + "/run", older = folder + "/checkpoints/step-000000002",
                    newer = folder + "/checkpoints/step-000000004";
  const std::string rows = read_text_file(folder + "/metrics.jsonl");
  write_file_atomically(folder + "/metrics.csv", "step,mine\n1,2\n");
  const Finished refused = run(train_command(config, {"--resume", older, "--run.csv=true"}), in_repository());
  INFO(refused.all());
  CHECK(refused.exit_code == 3);
  CHECK_THAT(refused.err, ContainsSubstring("other columns"));
  CHECK(std::filesystem::exists(newer));
  CHECK(read_text_file(folder + "/metrics.jsonl") == rows);
  const Finished resumed = run(train_command(config, {"--resume", older, "--train.max_steps=3"}), in_repository());
  CHECK(resumed.exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(newer));
  CHECK(read_text_file(folder + "/metrics.csv") == "step,mine\n1,2\n");
}

TEST_CASE("stopped within a validation, the run repeats it first thing") {
  const ScratchFolder a("esm-straight");
  // Many small validation sets make the validation long compared with the step before it.
  std::string sets = "{";
  for (int i = 0; i < 40; ++i)
    sets += fmt::format("{}s{:02d}: tests/data/protein/tiny_train.fasta", i == 0 ? "" : ", ", i);
  const std::vector<std::string> flags{"--train.max_steps=4",        "--eval.every_steps=2", "--resume=auto",
                                       "--checkpoint.on_error=stop", "--data.valid",         sets + "}"};
  REQUIRE(run(train_command(tiny_config(a.path()), flags), in_repository()).exit_code == 0);
  auto stopped_flags = flags;
  stopped_flags.push_back("--run.log_every_steps=1");
  // The same step is then saved again, with its validation: also where the file system cannot swap two folders.
  for (const bool can_swap : {true, false}) {
    CAPTURE(can_swap);
    const ScratchFolder b("esm-stopped");
    const ProcessOptions disk =
        can_swap ? in_repository() : on_odd_disk(in_repository(), "/step-000000002", "NO_SWAP", 1);
    Process process(train_command(tiny_config(b.path()), stopped_flags), disk);
    REQUIRE(process.wait_for("step 2/4", 60));
    process.send(SIGTERM);
    const Finished stopped = process.wait();
    INFO(stopped.all());
    CHECK(stopped.exit_code == 75);
    CHECK_FALSE(metric_rows(b.path() + "/run").contains("valid 2"));
    const Finished resumed = run(train_command(tiny_config(b.path()), flags), disk);
    INFO(resumed.all());
    REQUIRE(resumed.exit_code == 0);
    CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
    CHECK(names_with(b.path() + "/run/checkpoints", "replaced").empty());
  }
}
