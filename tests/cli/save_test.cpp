// Saving while training goes on, on slow, full, read-only and vanishing disks; damaged checkpoints. Through the built
// binary.
#include <csignal>
#include <functional>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

std::string step_folder(const std::string& run, int64_t step) {
  return fmt::format("{}/checkpoints/step-{:09d}", run, step);
}

// A line of `text` that holds `what`; "" without one.
std::string line_with(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at), end = text.find('\n', at);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace

TEST_CASE("a slow disk does not hold up steps, and changes no result") {
  const ScratchFolder a("esm-waits"), b("esm-goes-on");
  const std::vector<std::string> flags{"--train.max_steps=8", "--checkpoint.every_steps=2", "--checkpoint.keep_last=9",
                                       "--run.log_every_steps=1"};
  auto waiting = flags, slow = flags;
  waiting.push_back("--checkpoint.async=false");
  slow.insert(slow.end(), {"--test-slow-writes", "8"});
  const Finished waited = run(train_command(tiny_config(a.path()), waiting), in_repository());
  const Finished went_on = run(train_command(tiny_config(b.path()), slow), in_repository());
  INFO(waited.all() + went_on.all());
  REQUIRE(waited.exit_code == 0);
  REQUIRE(went_on.exit_code == 0);
  const auto position = [](const Finished& run, const std::string& text) {
    const size_t at = run.err.find(text);
    REQUIRE(at != std::string::npos);
    return at;
  };
  // Steps go on while a checkpoint is written; the next one begins when it is there.
  CHECK(position(waited, "step-000000002 (") < position(waited, "step 3/8"));
  CHECK(position(went_on, "step-000000002 (") > position(went_on, "step 3/8"));
  CHECK(position(went_on, "step-000000002 (") < position(went_on, "step 5/8"));
  CHECK(position(went_on, "step-000000008 (") < position(went_on, "done; last checkpoint"));
  CHECK_THAT(line_with(went_on.err, "step-000000002 ("), ContainsSubstring(" s, stalled "));
  CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
  for (const int64_t step : {2, 4, 6, 8})
    CHECK(tensor_hashes(a.path() + "/run", step) == tensor_hashes(b.path() + "/run", step));
}

TEST_CASE("a signal while a checkpoint is written: both are saved, and the run goes on as if nothing had been") {
  const ScratchFolder a("esm-straight"), b("esm-stopped");
  const std::vector<std::string> flags{"--train.max_steps=40", "--checkpoint.every_steps=10", "--resume=auto"};
  REQUIRE(run(train_command(tiny_config(a.path()), flags), in_repository()).exit_code == 0);
  auto slow = flags;
  slow.insert(slow.end(), {"--test-slow-writes=5", "--run.log_every_steps=1"});
  Process process(train_command(tiny_config(b.path()), slow), in_repository());
  REQUIRE(process.wait_for("step 11/40", 60));
  process.send(SIGTERM);
  const Finished stopped = process.wait();
  INFO(stopped.all());
  CHECK(stopped.exit_code == 75);
  CHECK(fs::exists(step_folder(b.path() + "/run", 10)));
  CHECK_FALSE(line_with(stopped.err, "stopped by SIGTERM; saved").empty());
  REQUIRE(run(train_command(tiny_config(b.path()), flags), in_repository()).exit_code == 0);
  CHECK(metric_rows(a.path() + "/run") == metric_rows(b.path() + "/run"));
  CHECK(tensor_hashes(a.path() + "/run", 40) == tensor_hashes(b.path() + "/run", 40));
}

TEST_CASE("damaged checkpoints are found before the first step; auto falls back, an explicit path never does") {
  const ScratchFolder scratch("esm-damaged");
  const std::string config = tiny_config(scratch.path(), "checkpoint: {every_steps: 4, keep_last: 3}\n");
  const std::string run_folder = scratch.path() + "/run", newest = step_folder(run_folder, 8);
  REQUIRE(run(train_command(config, {"--train.max_steps=8"}), in_repository()).exit_code == 0);
  const auto rows = metric_rows(run_folder);
  const auto sound = tensor_hashes(run_folder, 8);
  const std::string model = "model-00001-of-00001.safetensors", optimizer = "optimizer-00001-of-00001.safetensors";
  const auto content = [&](const std::string& file) { return read_text_file(newest + "/" + file); };
  const auto flipped = [](std::string text, size_t at) {
    text[at] = static_cast<char>(text[at] ^ 4);
    return text;
  };
  const std::string model_text = content(model), optimizer_text = content(optimizer);
  struct Case {
    std::string named, file, text;
  };
  for (const Case& damage :
       std::vector<Case>{{model, model, flipped(model_text, model_text.size() / 2)},
                         {optimizer, optimizer, optimizer_text.substr(0, optimizer_text.size() - 4096)},
                         {optimizer, optimizer, ""},
                         {model, model, optimizer_text},
                         {model, model, read_text_file(step_folder(run_folder, 4) + "/" + model)},
                         {"manifest.json", "manifest.json", flipped(content("manifest.json"), 300)}}) {
    CAPTURE(damage.named, damage.text.size());
    const std::string before = content(damage.file);
    write_file_atomically(newest + "/" + damage.file, damage.text);
    const Finished refused =
        run(train_command(config, {"--train.max_steps=12", "--resume=" + newest}), in_repository());
    INFO(refused.all());
    CHECK(refused.exit_code == 6);
    CHECK_THAT(refused.err, ContainsSubstring("step-000000008/" + damage.named));
    CHECK(metric_rows(run_folder) == rows);  // no step was made
    CHECK_FALSE(fs::exists(step_folder(run_folder, 12)));
    write_file_atomically(newest + "/" + damage.file, before);
  }
  write_file_atomically(newest + "/" + optimizer, flipped(optimizer_text, 5000));
  const Finished fell_back = run(train_command(config, {"--train.max_steps=8", "--resume=auto"}), in_repository());
  INFO(fell_back.all());
  CHECK(fell_back.exit_code == 0);
  CHECK_THAT(fell_back.err, ContainsSubstring("step-000000008/" + optimizer) &&
                                ContainsSubstring("resumed at step 4 from") && ContainsSubstring("is kept as"));
  CHECK(metric_rows(run_folder) == rows);
  CHECK(tensor_hashes(run_folder, 8) == sound);
}

TEST_CASE("the folder of checkpoints goes away or is replaced by a file while training goes on") {
  const ScratchFolder scratch("esm-vanishing");
  const std::string run_folder = scratch.path() + "/run", checkpoints = run_folder + "/checkpoints";
  const std::vector<std::string> flags{"--train.max_steps=120", "--checkpoint.every_steps=4",
                                       "--checkpoint.keep_last=99", "--run.log_every_steps=50"};
  Process process(train_command(tiny_config(scratch.path()), flags), in_repository());
  const auto while_stopped = [&](const std::function<void()>& change) {
    process.pause();
    change();
    process.send(SIGCONT);
  };
  REQUIRE(process.wait_for("step-000000008 (", 60));
  while_stopped([&] {
    fs::rename(checkpoints, scratch.path() + "/aside");
    write_file_atomically(checkpoints, "a file");
  });
  REQUIRE(process.wait_for("training goes on without this checkpoint", 60));
  while_stopped([&] {
    fs::remove(checkpoints);
    fs::rename(scratch.path() + "/aside", checkpoints);
  });
  const std::string before_removal = process.err();
  REQUIRE(process.wait_for("step-000000060 (", 60));
  while_stopped([&] { fs::remove_all(checkpoints); });
  const Finished done = process.wait();
  INFO(done.all());
  CHECK(done.exit_code == 0);
  const std::string line = line_with(before_removal, "training goes on without this checkpoint");
  CHECK_THAT(line, ContainsSubstring("was not saved") && ContainsSubstring("Not a directory"));
  CHECK(metric_rows(run_folder).size() == 121);
  CHECK_FALSE(fs::exists(step_folder(run_folder, 8)));
  CHECK(fs::exists(step_folder(run_folder, 120) + "/manifest.json"));
}

TEST_CASE("the run folder goes away, or a file takes its place, while training goes on") {
  const auto after_the_second_checkpoint = [](const ScratchFolder& scratch, std::vector<std::string> flags,
                                              const std::function<void(const std::string& run)>& change) {
    flags.insert(flags.end(), {"--train.max_steps=120", "--checkpoint.every_steps=4", "--checkpoint.keep_last=99",
                               "--run.log_every_steps=50"});
    Process process(train_command(tiny_config(scratch.path()), flags), in_repository());
    REQUIRE(process.wait_for("step-000000008 (", 60));
    process.pause();
    change(scratch.path() + "/run");
    process.send(SIGCONT);
    return process.wait();
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int64_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  const ScratchFolder removed("esm-removed");
  const Finished went_on =
      after_the_second_checkpoint(removed, {}, [](const std::string& folder) { fs::remove_all(folder); });
  INFO(went_on.all());
  CHECK(went_on.exit_code == 0);
  CHECK(count(went_on.err, "was removed or replaced during the run") == 1);
  CHECK(run({ESM_EXE, "inspect", removed.path() + "/run", "--verify"}).exit_code == 0);

  const ScratchFolder replaced("esm-replaced");
  const Finished stopped =
      after_the_second_checkpoint(replaced, {"--checkpoint.on_error=stop"}, [&](const std::string& folder) {
        fs::rename(folder, replaced.path() + "/aside");
        write_file_atomically(folder, "a file");
      });
  INFO(stopped.all());
  CHECK(stopped.exit_code == 6);
  // Warnings of the save before may come as well: it may not be done with removing old checkpoints.
  CHECK(count(stopped.err, "error: ") == 1);
  CHECK_THAT(line_with(stopped.err, "esmtrain: error: the checkpoint of step "), ContainsSubstring("Not a directory"));
  fs::remove(replaced.path() + "/run");
  fs::rename(replaced.path() + "/aside", replaced.path() + "/run");
  const Finished resumed =
      run(train_command(tiny_config(replaced.path()), {"--resume=auto", "--train.max_steps=120"}), in_repository());
  INFO(resumed.all());
  CHECK(resumed.exit_code == 0);
  CHECK(fs::exists(step_folder(replaced.path() + "/run", 120)));
  for (const auto& entry : fs::directory_iterator(replaced.path() + "/run/checkpoints"))
    CHECK(entry.path().string().find(".tmp-") == std::string::npos);
}

TEST_CASE("a read-only file system: refused before the first step, one line at each save in the middle of a run") {
  if (run({"unshare", "-rm", "true"}).exit_code != 0) {
    WARN("left out: no namespaces for mounts here");
    return;
  }
  const ScratchFolder scratch("esm-read-only");
  const std::string config = tiny_config(scratch.path()), checkpoints = scratch.path() + "/run/checkpoints";
  // $0: the folder that becomes read-only; the rest is a command. A second run finds it so from its start.
  const std::string script = R"("$@" --train.max_steps=200 2>"$0/../log" & child=$!
until grep -qs 'step-000000008 (' "$0/../log"; do sleep 0.01; kill -0 $child || exit 1; done
kill -STOP $child; mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 1; kill -CONT $child
wait $child; echo "first $?"
"$@" --train.max_steps=200 --resume=auto; echo "second $?")";
  std::vector<std::string> command{"unshare", "-rm", "bash", "-c", script, checkpoints};
  for (const std::string& word : train_command(config, {"--checkpoint.every_steps=4", "--checkpoint.keep_last=99"}))
    command.push_back(word);
  fs::create_directories(checkpoints);
  const Finished done = run(command, in_repository());
  const std::string log = read_text_file(scratch.path() + "/run/log");
  INFO(done.all() << "\n--- log\n" << log);
  CHECK_THAT(done.out, ContainsSubstring("first 6\n") && ContainsSubstring("second 6\n"));
  CHECK_THAT(line_with(log, "training goes on without this checkpoint"), ContainsSubstring("Read-only file system"));
  CHECK_THAT(log, ContainsSubstring("step 200/200") && ContainsSubstring("the last steps are not saved"));
  CHECK_THAT(line_with(done.err, "esmtrain: error: "),
             ContainsSubstring("cannot make the folder") && ContainsSubstring("Read-only file system"));
  CHECK(done.err.find("step 2") == std::string::npos);  // no step was made
  const Finished later = run(train_command(config, {"--resume=auto", "--train.max_steps=12"}), in_repository());
  INFO(later.all());
  CHECK(later.exit_code == 0);
  CHECK_THAT(later.err, ContainsSubstring("from " + checkpoints + "/step-0000000"));
}

TEST_CASE("a limit of the file size, by policy: the run goes on, or stops; what was there stays") {
  const ScratchFolder scratch("esm-limited");
  const std::string config = tiny_config(scratch.path(), "checkpoint: {every_steps: 4, keep_last: 3}\n");
  const std::string run_folder = scratch.path() + "/run";
  REQUIRE(run(train_command(config, {"--train.max_steps=4"}), in_repository()).exit_code == 0);
  const auto sound = tensor_hashes(run_folder, 4);
  const auto limited = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--resume=auto", "--train.max_steps=16"});
    std::vector<std::string> command{"bash", "-c", "ulimit -f 50 && exec \"$0\" \"$@\""};
    for (const std::string& word : train_command(config, more)) command.push_back(word);
    return run(command, in_repository());
  };
  const Finished went_on = limited({});
  const Finished stopped = limited({"--checkpoint.on_error=stop"});
  INFO(went_on.all() + stopped.all());
  CHECK(went_on.exit_code == 6);
  CHECK_THAT(went_on.err, ContainsSubstring("training goes on without this checkpoint: the checkpoint of step 8") &&
                              ContainsSubstring("the limit of the file size is reached") &&
                              ContainsSubstring("step 16/16") && ContainsSubstring("the last steps are not saved"));
  CHECK(stopped.exit_code == 6);
  CHECK_THAT(stopped.err, ContainsSubstring("the checkpoint of step 8 was not saved"));
  CHECK_FALSE(metric_rows(run_folder).contains("step 16"));
  CHECK(tensor_hashes(run_folder, 4) == sound);
  const Finished later = run(train_command(config, {"--resume=auto", "--train.max_steps=16"}), in_repository());
  INFO(later.all());
  CHECK(later.exit_code == 0);
  CHECK(fs::exists(step_folder(run_folder, 16)));
}
