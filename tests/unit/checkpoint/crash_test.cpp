// T1: whatever moment kills the writer, a complete checkpoint is found afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

// Saves 20 steps, keep 2, with a pause before every operation. Kills itself right before operation `last` (0: never).
// Never returns.
[[noreturn]] void save_slowly(const std::string& folder, int last) {
  try {
    int operations = 0;
    HookedFileSystem files([&](const auto&...) {
      if (++operations == last) ::kill(::getpid(), SIGKILL);
      std::this_thread::sleep_for(std::chrono::microseconds(last > 0 ? 0 : 300));
    });
    CheckpointStore store(folder, quiet({.keep_last = 2}, &files));
    const std::optional<OpenCheckpoint> newest = store.newest_complete();
    const int64_t first = newest.has_value() ? newest->manifest().step + 1 : 1;
    for (int64_t step = first; step < first + 20; ++step) store.save(Content(step).request());
  } catch (...) {
    ::_exit(9);
  }
  ::_exit(0);
}

// Every other process is killed from outside, at a random time; the rest die at a random operation.
void kill_many_times(int kills) {
  const ScratchFolder scratch("crash");
  std::mt19937 random(5);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int64_t last_seen = 0;
  int inside_a_save = 0;
  for (int trial = 0; trial < kills; ++trial) {
    const bool from_outside = trial % 2 == 0;
    const int last = between(2, 150);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) save_slowly(scratch.path(), from_outside ? 0 : last);
    if (from_outside) {
      std::this_thread::sleep_for(std::chrono::microseconds(between(500, 60'000)));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(((from_outside && WIFEXITED(status) && WEXITSTATUS(status) == 0) || WIFSIGNALED(status)));
    for (const std::string& name : entries_of(scratch.path()))
      inside_a_save += parse_temporary_name(name).has_value() ? 1 : 0;

    CheckpointStore store(scratch.path(), quiet());
    const std::optional<OpenCheckpoint> newest = store.newest_complete();
    if (newest.has_value()) {
      CHECK(Content(newest->manifest().step).equals(*newest));
      CHECK(newest->manifest().step >= last_seen);  // nothing that was seen complete is lost
      last_seen = newest->manifest().step;
    } else {
      CHECK(last_seen == 0);
    }
    CHECK(store.list().size() <= 3);
    CHECK(entries_of(scratch.path()).size() == store.list().size());  // no leftovers
  }
  CHECK(last_seen > 0);
  CHECK(inside_a_save > 0);
}

TEST_CASE("SIGKILL at 20 random moments") { kill_many_times(20); }

TEST_CASE("SIGKILL at 200 random moments", "[slow]") { kill_many_times(200); }

struct Operation {
  std::string kind, path;
  std::string bytes;
};

// What is on the disk after the first `count` operations and a loss of power: files that were not synced are empty, and
// renames and swaps after which their folder was not synced may not have happened.
void replay(const std::vector<Operation>& log, size_t count, const std::string& old_root, const std::string& root,
            bool lose_renames) {
  const auto moved = [&](const std::string& path) { return root + path.substr(old_root.size()); };
  std::map<std::string, bool> synced;  // by path at the time of writing
  std::vector<Operation> loose_renames;
  std::map<std::string, std::string> contents;
  for (size_t i = 0; i < count; ++i) {
    const Operation& op = log[i];
    const size_t two = op.path.find('\n');
    if (op.kind == "make_folder") fs::create_directories(moved(op.path));
    if (op.kind == "create") contents[op.path].clear();
    if (op.kind == "write") contents[op.path] += op.bytes;
    if (op.kind == "sync") synced[op.path] = true;
    if (op.kind == "create" || op.kind == "write") synced[op.path] = false;
    if (op.kind == "remove_folder") fs::remove_all(moved(op.path));
    if (op.kind == "sync_folder" && op.path == old_root) loose_renames.clear();
    if (op.kind == "rename" || op.kind == "exchange") {
      const std::string from = op.path.substr(0, two), to = op.path.substr(two + 1);
      // Flush what the folder holds by now.
      for (const auto& [path, bytes] : contents)
        if (path.starts_with(from + "/")) put_file(moved(path), synced[path] ? bytes : "");
      std::erase_if(contents, [&](const auto& entry) { return entry.first.starts_with(from + "/"); });
      if (op.kind == "rename")
        fs::rename(moved(from), moved(to));
      else
        FileSystem::real().exchange(moved(from), moved(to));
      loose_renames.push_back({.kind = op.kind, .path = moved(from), .bytes = moved(to)});
    }
  }
  for (const auto& [path, bytes] : contents)
    if (fs::exists(fs::path(moved(path)).parent_path())) put_file(moved(path), synced[path] ? bytes : "");
  if (lose_renames)
    for (auto it = loose_renames.rbegin(); it != loose_renames.rend(); ++it) {
      if (!fs::exists(it->bytes)) continue;
      if (it->kind == "rename")
        fs::rename(it->bytes, it->path);
      else
        FileSystem::real().exchange(it->path, it->bytes);
    }
}

// Saves `contents` one after the other, and looks at what every moment leaves behind: the newest one whose save() had
// returned, or a later one. A reader finds it at once; a new process finds it too, and tidies up.
void check_every_prefix(const std::vector<Content>& contents, bool can_exchange, size_t* operations) {
  const ScratchFolder scratch("crash");
  std::vector<Operation> log;
  std::map<size_t, size_t> committed;  // operations so far -> saves that had returned
  HookedFileSystem files([&](const std::string& kind, const std::string& path, std::span<const std::byte> bytes) {
    if (kind == "exchange" && !can_exchange) return;
    log.push_back({kind, path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  });
  files.can_exchange = can_exchange;
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, &files));
  for (size_t i = 0; i < contents.size(); ++i) {
    store.save(contents[i].request());
    committed[log.size()] = i + 1;
    CHECK(entries_of(scratch.path()).size() == 1);
  }
  const ScratchFolder copies("crash-replay");
  for (const bool lose_renames : {false, true}) {
    for (size_t count = 1; count <= log.size(); ++count) {
      INFO(count << " of " << log.size() << " operations, renames lost: " << lose_renames);
      const std::string root = copies.path() + fmt::format("/{}-{}", lose_renames, count);
      fs::create_directories(root);
      replay(log, count, scratch.path(), root, lose_renames);
      size_t promised = 0;
      for (const auto& [operations_so_far, saves] : committed)
        if (operations_so_far <= count) promised = saves;
      const auto check = [&](const std::optional<OpenCheckpoint>& newest) {
        if (promised > 0) REQUIRE(newest.has_value());
        if (!newest.has_value()) return;
        const auto first = contents.begin() + static_cast<std::ptrdiff_t>(promised == 0 ? 0 : promised - 1);
        CHECK(std::any_of(first, contents.end(), [&](const Content& content) { return content.equals(*newest); }));
      };
      CheckpointFolder reader(root, [](const std::string&) {});
      check(reader.newest_complete());
      const size_t complete = reader.complete_steps().size();
      CheckpointStore after(root, quiet({.keep_last = 1}));
      check(after.newest_complete());
      CHECK(after.list().size() == complete);
      CHECK(entries_of(root).size() == complete);  // no leftovers
      for (const StepFolder& folder : after.list()) CHECK(folder.path == after.step_path(folder.step));
      fs::remove_all(root);
    }
  }
  *operations = log.size();
}

TEST_CASE("every prefix of what is written, synced and renamed leaves a complete checkpoint") {
  size_t operations = 0;
  check_every_prefix({Content(10), Content(20), Content(30)}, true, &operations);
  CHECK(operations > 60);
}

TEST_CASE("every prefix of saving a step again, whether or not the file system can swap, leaves it complete") {
  const bool can_exchange = GENERATE(true, false);
  CAPTURE(can_exchange);
  size_t operations = 0;
  check_every_prefix({Content(20), Content(20, 40, 1), Content(30)}, can_exchange, &operations);
  CHECK(operations > 60);
}

}  // namespace
}  // namespace esm::checkpoint
