// `esmtrain train` that is told to stop before its data are ready.
#include <fcntl.h>
#include <sys/file.h>

#include <csignal>
#include <filesystem>

#include "base/files.h"
#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

TEST_CASE("a training that waits for its data says so, and ends on a signal as any other training does") {
  const ScratchFolder scratch("esm-stop");
  const auto command = train_command(tiny_config(scratch.path()), {"--train.max_steps=1", "--resume=auto"});
  REQUIRE(run(command, in_repository()).exit_code == 0);
  // As if the folders of the cache were being made by somebody else.
  std::vector<FileDescriptor> locks;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(scratch.path() + "/cache"))
    if (entry.path().extension() == ".lock")
      locks.emplace_back(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    else
      folders.push_back(entry.path());
  REQUIRE(locks.size() == 2);
  for (const FileDescriptor& lock : locks) REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  for (const fs::path& folder : folders) fs::remove_all(folder);
  fs::remove_all(scratch.path() + "/run");
  for (const auto& [signal, code] : {std::pair{SIGTERM, 75}, {SIGUSR1, 75}, {SIGINT, 130}}) {
    CAPTURE(signal);
    Process process(command, in_repository());
    REQUIRE(process.wait_for("another process is preparing " + scratch.path() + "/cache/", 60));
    process.send(signal);
    const Finished stopped = process.wait();
    INFO(stopped.all());
    CHECK(stopped.exit_code == code);
    CHECK_THAT(stopped.err, ContainsSubstring("before training began"));
  }
  Process process(command, in_repository());
  REQUIRE(process.wait_for("another process is preparing", 60));
  locks.clear();
  const Finished done = process.wait();
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK(fs::exists(scratch.path() + "/run/checkpoints/step-000000001"));
}
