// The frame of the program: help, version, unknown commands.
#include <algorithm>
#include <sstream>

#include "cli/process.h"
#include "support/catch.h"

using esm::test::Finished;
using esm::test::run;

TEST_CASE("every command has a help text with usage and exit code 0") {
  const Finished top = run({ESM_EXE, "--help"});
  INFO(top.all());
  CHECK(top.exit_code == 0);
  CHECK(top.err.empty());
  for (const std::string command :
       {"train", "eval", "data", "convert", "inspect", "plan", "bench", "doctor", "config", "report"}) {
    CHECK_THAT(top.out, ContainsSubstring("\n  " + command + " "));
    const Finished help = run({ESM_EXE, command, "--help"});
    INFO(help.all());
    CHECK(help.exit_code == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, ContainsSubstring("Usage: esmtrain " + command));
  }
  CHECK(run({ESM_EXE, "-h"}).out == top.out);
  const Finished train = run({ESM_EXE, "train", "--help"});
  CHECK_THAT(train.out, ContainsSubstring("  train.max_steps: integer, at least 1; default "));
  CHECK_THAT(train.out, ContainsSubstring("--resume"));
}

TEST_CASE("--version names the program, its commit, the preset and each library, one a line") {
  const Finished done = run({ESM_EXE, "--version"});
  INFO(done.all());
  CHECK(done.exit_code == 0);
  std::vector<std::string> names;
  std::istringstream lines(done.out);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    REQUIRE(space != std::string::npos);
    CHECK(space + 1 < line.size());
    names.push_back(line.substr(0, space));
  }
  for (const char* name : {"esmtrain", "commit", "preset", "LibTorch", "CUDA", "cuBLASLt", "NCCL", "HDF5"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
}

TEST_CASE("unknown and missing commands exit with 2 and suggest") {
  const Finished unknown = run({ESM_EXE, "trian", "x.yaml"});
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("unknown command 'trian'") && ContainsSubstring("did you mean train?"));
  const Finished none = run({ESM_EXE});
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.err,
             ContainsSubstring(
                 "expected a command: train, eval, data, convert, inspect, plan, bench, doctor, config, report"));
  const Finished inner = run({ESM_EXE, "config", "shwo", "x.yaml"});
  CHECK(inner.exit_code == 2);
  CHECK_THAT(inner.err,
             ContainsSubstring("esmtrain config: unknown command 'shwo'") && ContainsSubstring("did you mean show?"));
  const Finished option = run({ESM_EXE, "config", "reference", "--outt", "x"});
  CHECK(option.exit_code == 2);
  CHECK_THAT(option.err, ContainsSubstring("unknown option --outt"));
}
