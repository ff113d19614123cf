// T7: a disk that is full, read only or gone while a checkpoint is written.
#include <sys/resource.h>

#include <csignal>

#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

TEST_CASE("no space at any of 40 offsets: older checkpoints are intact and the next save works") {
  const ScratchFolder scratch("full");
  const Content big(30, 3000);  // some 110 KB
  int64_t written = 0, limit = -1;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, std::span<const std::byte> bytes) {
    if (operation != "write") return;
    written += static_cast<int64_t>(bytes.size());
    if (limit >= 0 && written > limit) throw DiskFullError("cannot write " + path + ": the disk is full");
  });
  StoreOptions options = quiet({.keep_last = 9}, &files);
  options.max_file_bytes = 20'000;
  CheckpointStore store(scratch.path(), options);
  store.save(Content(10).request());
  store.save(Content(20).request());
  written = 0;
  store.save(big.request());
  const int64_t whole = written;
  fs::remove_all(store.step_path(30));
  for (int64_t trial = 0; trial < 40; ++trial) {
    written = 0;
    limit = whole * trial / 40;
    INFO("limit " << limit << " of " << whole);
    try {
      store.save(big.request());
      FAIL("saved");
    } catch (const DiskFullError& e) {
      CHECK_THAT(e.what(), ContainsSubstring("the checkpoint of step 30 was not saved"));
      CHECK_THAT(e.what(), ContainsSubstring("the disk is full"));
    }
    CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010", "step-000000020"});
    CHECK(Content(20).equals(*store.newest_complete()));
  }
  limit = -1;
  store.save(big.request());
  CHECK(big.equals(*store.newest_complete()));
}

TEST_CASE("an operation that fails, whichever it is, leaves the older checkpoints and no partial folder") {
  const ScratchFolder scratch("full");
  int64_t count = 0, fail_at = -1;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    if (operation == "remove_folder") return;
    if (++count == fail_at) throw CheckpointError(operation + " " + path + ": Input/output error");
  });
  CheckpointStore store(scratch.path(), quiet({.keep_last = 9}, &files));
  store.save(Content(10).request());
  count = 0;
  store.save(Content(20).request());
  const int64_t operations = count;
  REQUIRE(operations > 15);
  fs::remove_all(store.step_path(20));
  for (fail_at = 1; fail_at <= operations; ++fail_at) {
    count = 0;
    INFO("operation " << fail_at << " of " << operations);
    CHECK_THROWS_AS(store.save(Content(20).request()), CheckpointError);
    const bool renamed = fs::exists(store.step_path(20));  // only the sync after the commit failed
    CHECK(renamed == (fail_at == operations));
    CHECK(entries_of(scratch.path()).size() == (renamed ? 2u : 1u));
    CHECK(Content(renamed ? 20 : 10).equals(*store.newest_complete()));
  }
}

TEST_CASE("a real limit of the file size") {
  const ScratchFolder scratch("full");
  CheckpointStore store(scratch.path(), quiet({}, &FileSystem::real()));
  store.save(Content(10).request());
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {0, 100, 5000, 20'000}) {
    const rlimit small{.rlim_cur = limit, .rlim_max = old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string message;
    try {
      store.save(Content(20, 3000).request());
    } catch (const DiskFullError& e) {
      message = e.what();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_THAT(message, ContainsSubstring("limit of the file size"));
    CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});
  }
  std::signal(SIGXFSZ, old_action);
  store.save(Content(20, 3000).request());
  CHECK(Content(20, 3000).equals(*store.newest_complete()));
}

TEST_CASE("free space is looked at before anything is written") {
  const ScratchFolder scratch("full");
  HookedFileSystem files([](const auto&...) {});
  CheckpointStore store(scratch.path(), quiet({}, &files));
  store.save(Content(10).request());
  files.free = 50'000;
  try {
    store.save(Content(20, 3000).request());
    FAIL("saved");
  } catch (const DiskFullError& e) {
    CHECK_THAT(e.what(), ContainsSubstring("are needed, 48.8 KiB are free"));
  }
  CHECK_THROWS_AS(store.check_free_space(50'001), DiskFullError);
  CHECK_NOTHROW(store.check_free_space(50'000));
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});
}

TEST_CASE("the folder is removed during the run") {
  const ScratchFolder scratch("full");
  CheckpointStore store(scratch.path() + "/checkpoints", quiet());
  store.save(Content(10).request());
  fs::remove_all(scratch.path() + "/checkpoints");
  store.save(Content(20).request());
  CHECK(Content(20).equals(*store.newest_complete()));
  // Something else stands there now: an error, not a crash.
  fs::remove_all(scratch.path() + "/checkpoints");
  write_file_atomically(scratch.path() + "/checkpoints", "a file");
  CHECK_THROWS_AS(store.save(Content(30).request()), CheckpointError);
}

}  // namespace
}  // namespace esm::checkpoint
