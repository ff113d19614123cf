// What somebody does who tries the program for the first time, or in a script that is not quite right: wrong paths, no
// arguments, Ctrl-C, closed and full standard streams. One clear line, an exit code, nothing half-written.
#include <csignal>

#include "support/catch.h"
#include "tests/cli/odd_disk.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

// Through a shell, with redirections.
Finished in_shell(const Words& words, const std::string& redirections) {
  Words command{"bash", "-c", "exec \"$0\" \"$@\" " + redirections, ESM_EXE};
  command.insert(command.end(), words.begin(), words.end());
  return run(command, in_repository());
}

Finished esmtrain(Words words) {
  words.insert(words.begin(), ESM_EXE);
  return run(std::move(words), in_repository());
}

void check_one_line(const Finished& done, int exit_code) {
  INFO(done.all());
  CHECK(done.exit_code == exit_code);
  CHECK(lines_with(done.err, "esmtrain: error: ") == 1);
  CHECK(done.err.ends_with('\n'));
  CHECK(done.err.rfind("esmtrain: error: ") == done.err.rfind('\n', done.err.size() - 2) + 1);  // the last line
}

const std::string kGolden = "tests/data/golden/hf_d16", kProteins = "tests/data/protein/tiny_train.fasta";

}  // namespace

TEST_CASE("every command without arguments, with a path to nowhere, and with an option that is not there") {
  const ScratchFolder scratch("esm-newcomer");
  const std::string none = scratch.path() + "/none", out = scratch.path() + "/out";
  for (const Words& words : std::vector<Words>{{},
                                               {"train"},
                                               {"eval"},
                                               {"data"},
                                               {"data", "prepare"},
                                               {"data", "inspect"},
                                               {"data", "verify"},
                                               {"convert"},
                                               {"inspect"},
                                               {"plan"},
                                               {"bench"},
                                               {"bench", "step"},
                                               {"bench", "gemm"},
                                               {"config"},
                                               {"config", "show"},
                                               {"config", "check"},
                                               {"report", "fp8"}})
    check_one_line(esmtrain(words), 2);
  struct Case {
    Words words;
    int exit_code;
  };
  for (const Case& wrong :
       std::vector<Case>{{{"train", none}, 2},
                         {{"train", kProteins}, 2},
                         {{"train", "configs/smoke.yaml", "--train.threads", "100000"}, 2},
                         {{"convert", kGolden, "", "--to", "hf"}, 2},
                         {{"inspect", ""}, 2},
                         {{"train", "configs/smoke.yaml", "--data.train", none, "--run.dir", out}, 3},
                         {{"train", "configs/smoke.yaml", "--init_from", none, "--run.dir", out}, 6},
                         {{"train", "configs/smoke.yaml", "--resume", none, "--run.dir", out}, 6},
                         {{"train", "configs/smoke.yaml", "--run.dir", "/proc/none"}, 3},
                         {{"eval", none, "--data", kProteins}, 6},
                         {{"eval", kGolden, "--data", none}, 3},
                         {{"data", "prepare", none, "--out", out}, 3},
                         {{"data", "prepare", kProteins, "--out", "/proc/none"}, 3},
                         {{"data", "inspect", none}, 3},
                         {{"data", "verify", none}, 3},
                         {{"convert", none, out, "--to", "hf"}, 6},
                         {{"convert", kGolden, "/proc/none", "--to", "hf"}, 6},
                         {{"convert", kGolden, kProteins + "/x", "--to", "hf"}, 6},
                         {{"inspect", none}, 6},
                         {{"inspect", kProteins}, 6},
                         {{"plan", none}, 2},
                         {{"bench", "step", "--config", none}, 2},
                         {{"config", "check", none}, 2},
                         {{"config", "check", "tests"}, 2},
                         {{"config", "show", "/dev/null"}, 2},
                         {{"report", "fp8", none}, 3}}) {
    CAPTURE(wrong.words);
    check_one_line(esmtrain(wrong.words), wrong.exit_code);
  }
  for (Words words : std::vector<Words>{{"train", "configs/smoke.yaml"},
                                        {"eval", kGolden},
                                        {"data", "prepare", kProteins},
                                        {"data", "inspect", kProteins},
                                        {"data", "verify", out},
                                        {"convert", kGolden, out},
                                        {"inspect", kGolden},
                                        {"plan", "configs/smoke.yaml"},
                                        {"bench", "step"},
                                        {"doctor"},
                                        {"config", "show", "configs/smoke.yaml"},
                                        {"report", "fp8", out}}) {
    words.emplace_back("--no-such-option");
    CAPTURE(words);
    const Finished done = esmtrain(words);
    check_one_line(done, 2);
    CHECK_THAT(done.err, ContainsSubstring("--no-such-option"));
  }
  CHECK(fs::is_empty(out + "/checkpoints"));  // of the runs that found something wrong
}

TEST_CASE("output that cannot be written is an error: /dev/full and a closed standard output") {
  const ScratchFolder scratch("esm-full-out");
  const std::string shards = scratch.path() + "/shards";
  REQUIRE(esmtrain({"data", "prepare", kProteins, "--out", shards}).exit_code == 0);
  for (const Words& words : std::vector<Words>{{"--version"},
                                               {"--help"},
                                               {"train", "--help"},
                                               {"config", "reference"},
                                               {"config", "show", "configs/smoke.yaml"},
                                               {"config", "check", "configs/smoke.yaml"},
                                               {"inspect", kGolden},
                                               {"inspect", kGolden, "--json"},
                                               {"plan", "configs/esm2_8m.yaml"},
                                               {"data", "inspect", kProteins},
                                               {"data", "verify", shards}}) {
    CAPTURE(words);
    const Finished full = in_shell(words, ">/dev/full");
    check_one_line(full, 1);
    CHECK_THAT(full.err, ContainsSubstring("cannot write to standard output: "));
    const Finished closed = in_shell(words, ">&-");
    check_one_line(closed, 1);
    CHECK_THAT(closed.err, ContainsSubstring("cannot write to standard output: "));
  }
  // An error that nobody can be told of still has its exit code.
  CHECK(in_shell({"data", "inspect", "nosuch.fasta"}, "2>/dev/full").exit_code == 3);
  CHECK(in_shell({"bogus"}, "2>/dev/full").exit_code == 2);
  // Whoever reads has had enough.
  CHECK(run({"bash", "-c",
             "\"$0\" config reference | head -n 1 >/dev/null; test ${PIPESTATUS[0]} -ne 0 -o ${PIPESTATUS[1]} -eq 0",
             ESM_EXE})
            .exit_code == 0);
}

TEST_CASE("a program without standard streams prints into none of its files") {
  const ScratchFolder scratch("esm-closed");
  const std::string shards = scratch.path() + "/shards", model = scratch.path() + "/model";
  CHECK(in_shell({"data", "prepare", kProteins, "--out", shards}, "<&- >&- 2>&-").exit_code ==
        1);  // nobody read the report
  CHECK(esmtrain({"data", "verify", shards}).exit_code == 0);
  in_shell({"convert", kGolden, model, "--to", "native"}, "<&- >&- 2>&-");
  CHECK(esmtrain({"inspect", model, "--verify"}).exit_code == 0);
  const std::string config = tiny_config(scratch.path());
  const Finished trained = in_shell({"train", config, "--train.max_steps=2"}, "<&- >&- 2>&-");
  INFO(trained.all());
  CHECK(trained.exit_code == 0);
  CHECK(esmtrain({"inspect", scratch.path() + "/run", "--verify"}).exit_code == 0);
  CHECK(metric_rows(scratch.path() + "/run").size() == 3);
  const Finished unread = in_shell({"data", "prepare", "-", "--out", scratch.path() + "/none"}, "<&-");
  check_one_line(unread, 3);
  CHECK_THAT(unread.err, ContainsSubstring("standard input"));
  CHECK_FALSE(fs::exists(scratch.path() + "/none"));
}

TEST_CASE("Ctrl-C in an export and in a preparation: 130, one line, nothing half-written") {
  for (const Words& words : std::vector<Words>{
           {"convert", kGolden, "OUT", "--to", "hf"},
           {"convert", kGolden, "OUT", "--to", "native"},
           {"data", "prepare", "tests/data/protein/train_uniprot.fasta.gz", "--max-shard-mib", "1", "--out", "OUT"}}) {
    CAPTURE(words);
    const ScratchFolder scratch("esm-ctrl-c");
    Words command{ESM_EXE};
    for (const std::string& word : words) command.push_back(word == "OUT" ? scratch.path() + "/out" : word);
    Process process(command, on_odd_disk(in_repository(), "/out.tmp-", "MS", 100));
    // At work once the temporary folder is there.
    for (int i = 0; i < 6000 && names_with(scratch.path(), "out.tmp-").empty() && process.running(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    process.send(SIGINT);
    const Finished done = process.wait();
    check_one_line(done, 130);
    CHECK_THAT(done.err, ContainsSubstring("stopped; "));
    CHECK_FALSE(fs::exists(scratch.path() + "/out"));
    if (done.err.find("nothing was written") != std::string::npos)
      CHECK(fs::is_empty(scratch.path()));
    else  // whole shards are kept
      CHECK(run(command, in_repository()).exit_code == 0);
  }
}
