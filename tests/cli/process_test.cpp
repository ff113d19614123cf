// The harness itself: a harness that cannot tell failure from success would pass everything.
#include "cli/process.h"

#include "support/catch.h"

using esm::test::Finished;
using esm::test::Process;
using esm::test::run;

TEST_CASE("exit codes, output, environment and folder reach the test") {
  const Finished done = run({"sh", "-c", "echo out $X${HOME:-none}; pwd; echo err >&2; exit 7"},
                            {.env = {{"X", "1"}}, .unset = {"HOME"}, .folder = "/"});
  CHECK(done.exit_code == 7);
  CHECK(done.signal == 0);
  CHECK(done.out == "out 1none\n/\n");
  CHECK(done.err == "err\n");
  CHECK(run({"no-such-program-anywhere"}).exit_code == 127);
}

TEST_CASE("a process that hangs is killed with its children") {
  const Finished done = run({"sh", "-c", "sleep 100 & sleep 100"}, {.timeout_s = 0.3});
  CHECK(done.timed_out);
  CHECK(done.signal == SIGKILL);
  CHECK(done.seconds < 30);
}

TEST_CASE("signals can be sent once the process says that it is ready") {
  Process process({"sh", "-c", "trap 'echo caught; exit 75' TERM; echo ready; while :; do sleep 0.05; done"});
  REQUIRE(process.wait_for("ready", 30));
  process.send(SIGTERM);
  const Finished done = process.wait();
  INFO(done.all());
  CHECK(done.exit_code == 75);
  CHECK(done.out == "ready\ncaught\n");
  CHECK_FALSE(Process({"true"}).wait_for("never said", 10));
}
