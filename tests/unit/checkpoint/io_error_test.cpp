// File systems that do not answer. A link that leads to itself makes every question about it an error (ELOOP), as EIO
// and ESTALE are on network file systems; each becomes a CheckpointError, which checkpoint.on_error is about.
#include <new>
#include <system_error>

#include "checkpoint/torch_file.h"
#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

constexpr char kLoop[] = "Too many levels of symbolic links";

void loop(const fs::path& path) { fs::create_symlink(path.filename(), path); }

bool any_of(const std::vector<std::string>& lines, std::string_view part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != line.npos; });
}

TEST_CASE("a checkpoint that cannot be looked at is passed over, and said so") {
  const ScratchFolder scratch("io-error");
  std::vector<std::string> lines;
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, nullptr, &lines));
  store.save(Content(10).request());
  loop(store.step_path(30));
  CHECK(steps_of(store) == std::vector<int64_t>{30, 10});
  CHECK(Content(10).equals(*store.newest_complete()));
  CHECK(any_of(lines, kLoop));
  CHECK_THROWS_WITH(load_manifest(store.step_path(30)),
                    ContainsSubstring("cannot look at " + store.step_path(30)) && ContainsSubstring(kLoop));
  CHECK_THROWS_AS(SafetensorsSet(store.step_path(30)), CheckpointError);
  CHECK_THROWS_AS(TorchFile(store.step_path(30)), CheckpointError);
  CHECK_THROWS_AS(store.save(Content(30).request()), CheckpointError);
  // Alone it is not taken for an empty folder, where a run would begin from nothing.
  fs::remove_all(store.step_path(10));
  CHECK_THROWS_WITH(store.newest_complete(), ContainsSubstring("none of the 1 checkpoints is sound"));
  // Nor is one whose manifest cannot be looked at.
  store.save(Content(20).request());
  const std::string manifest = store.step_path(20) + "/" + kManifestName;
  fs::remove(manifest);
  loop(manifest);
  CHECK_THROWS_WITH(load_manifest(store.step_path(20)), ContainsSubstring(kLoop));
  CHECK(steps_of(store) == std::vector<int64_t>{30, 20});
}

TEST_CASE("a file system that stops answering in the middle of a save: CheckpointError, and the next save works") {
  const ScratchFolder scratch("io-error");
  const std::string root = scratch.path() + "/checkpoints", away = scratch.path() + "/away";
  bool leaves = false, throws = false;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    if (throws && operation == "close")
      throw fs::filesystem_error("status", path, std::make_error_code(std::errc::io_error));
    if (!leaves || operation != "sync_folder" || path.find(kTemporaryMark) == path.npos) return;
    fs::rename(root, away);
    loop(root);
  });
  CheckpointStore store(root, quiet({}, &files));
  store.save(Content(10).request());
  leaves = true;
  CHECK_THROWS_WITH(store.save(Content(20).request()),
                    ContainsSubstring("step 20 was not saved: cannot look at " + store.step_path(20)));
  fs::remove(root);
  fs::rename(away, root);
  leaves = false;
  throws = true;
  CHECK_THROWS_AS(store.save(Content(20).request()), CheckpointError);
  throws = false;
  store.save(Content(20).request());
  CHECK(Content(20).equals(*store.newest_complete()));
  CHECK(entries_of(root) == std::vector<std::string>{"step-000000010", "step-000000020"});
}

TEST_CASE("whatever goes wrong when old checkpoints are removed is a line of the report") {
  const ScratchFolder scratch("io-error");
  std::vector<std::string> lines;
  bool no_memory = false;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    if (no_memory && operation == "rename" && path.find(kTrashPrefix) != path.npos) throw std::bad_alloc();
  });
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, &files, &lines));
  const auto save = [&](int64_t step) {
    lines.clear();
    const Content content(step);
    SaveRequest request = content.request();
    request.manifest.metric = 1.0 / static_cast<double>(step);
    CHECK_NOTHROW(store.save(request));
    CHECK(content.equals(*store.newest_complete()));
  };
  save(10);
  loop(store.step_path(10) + "/" + kPinnedName);
  save(20);
  CHECK(any_of(lines, "left alone"));
  CHECK(any_of(lines, kLoop));
  CHECK(steps_of(store) == std::vector<int64_t>{20, 10});
  loop(store.step_path(20) + "/" + kPinnedName);
  CHECK_THROWS_WITH(store.discard_newer_than(10), ContainsSubstring(kLoop));
  fs::remove(store.step_path(20) + "/" + kPinnedName);
  fs::remove(store.step_path(10) + "/" + kPinnedName);
  no_memory = true;
  save(30);
  CHECK(any_of(lines, "removing old checkpoints"));
  no_memory = false;
  fs::remove(scratch.path() + "/" + kBestName);
  loop(scratch.path() + "/" + kBestName);
  save(40);
  CHECK(any_of(lines, kLoop));
  fs::remove(scratch.path() + "/" + kBestName);
  save(50);
  CHECK(lines.empty());
  CHECK(steps_of(store) == std::vector<int64_t>{50});
}

}  // namespace
}  // namespace esm::checkpoint
