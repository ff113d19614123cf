// T2 of the reliability figures: damage to a checkpoint is always found, the file is named, `auto` falls back.
#include <random>

#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

struct Folder {
  ScratchFolder scratch{"damage"};
  std::vector<std::string> lines;
  CheckpointStore store;
  std::string newest;
  std::map<std::string, std::string> sound;  // file -> content of the newest

  int64_t rows;

  explicit Folder(int64_t rows_ = 40, int64_t max_file_bytes = 400)
      : store(scratch.path(), options(max_file_bytes)), newest(store.step_path(20)), rows(rows_) {
    store.save(Content(10, rows).request());
    store.save(Content(20, rows).request());
    for (const std::string& name : entries_of(newest)) sound[name] = read_text_file(newest + "/" + name);
  }
  StoreOptions options(int64_t max_file_bytes) {
    StoreOptions options = quiet({.keep_last = 5}, nullptr, &lines);
    options.max_file_bytes = max_file_bytes;
    return options;
  }
  void put(const std::string& name, const std::string& content) { put_file(newest + "/" + name, content); }

  // Explicit opening fails and names `file`; resuming falls back to step 10.
  void check_found(const std::string& file) {
    std::string message;
    try {
      const OpenCheckpoint opened(newest);
    } catch (const CheckpointError& e) {
      message = e.what();
    }
    CHECK_THAT(message, ContainsSubstring(file));
    lines.clear();
    const std::optional<OpenCheckpoint> found = store.newest_complete();
    REQUIRE(found.has_value());
    CHECK(Content(10, rows).equals(*found));
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], ContainsSubstring(file) && ContainsSubstring("next older"));
  }
};

TEST_CASE("a flipped bit anywhere in a checkpoint is found") {
  Folder folder;
  std::mt19937 random(3);
  for (const auto& [name, content] : folder.sound) {
    for (int trial = 0; trial < 60; ++trial) {
      std::string damaged = content;
      const size_t at = std::uniform_int_distribution<size_t>(0, content.size() - 1)(random);
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (trial % 8)));
      INFO(name << " byte " << at << " bit " << trial % 8);
      folder.put(name, damaged);
      folder.check_found(name);
    }
    folder.put(name, content);
  }
  CHECK(Content(20).equals(OpenCheckpoint(folder.newest)));
}

TEST_CASE("files cut, grown, swapped, exchanged with another step's, missing or linked are found") {
  Folder folder;
  const std::string older = folder.store.step_path(10);
  for (const auto& [name, content] : folder.sound) {
    INFO(name);
    for (const std::string& other : {content.substr(0, content.size() - 1), content.substr(0, content.size() / 2),
                                     std::string(), content + " ", read_text_file(older + "/" + name)}) {
      if (other == content) continue;  // passed-through tensors are the same in every step
      folder.put(name, other);
      folder.check_found(name);
    }
    fs::remove(folder.newest + "/" + name);
    if (name != kManifestName) {
      folder.check_found(name);
      fs::create_symlink(older + "/" + name, folder.newest + "/" + name);
      folder.check_found(name);
      fs::remove(folder.newest + "/" + name);
      fs::create_directory(folder.newest + "/" + name);
      folder.check_found(name);
      fs::remove(folder.newest + "/" + name);
    }
    folder.put(name, content);
  }
  const std::string a = folder.sound.lower_bound("optimizer-00001")->first;
  const std::string b = folder.sound.lower_bound("optimizer-00002")->first;
  REQUIRE(b.starts_with("optimizer-00002"));
  folder.put(a, folder.sound[b]);
  folder.put(b, folder.sound[a]);
  folder.check_found(a);
  folder.put(a, folder.sound[a]);
  folder.put(b, folder.sound[b]);
  CHECK(Content(20).equals(OpenCheckpoint(folder.newest)));
}

// One way of damaging the newest checkpoint; returns the file that is to be named.
std::string damage(Folder& folder, std::mt19937& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto any = [&] {
    return std::next(folder.sound.begin(), static_cast<std::ptrdiff_t>(below(folder.sound.size())));
  };
  const std::string older = folder.store.step_path(10);
  for (;;) {
    const auto& [name, content] = *any();
    const auto& [other, other_content] = *any();
    std::string damaged = content;
    switch (below(10)) {
      case 0: damaged.pop_back(); break;
      case 1: damaged.resize(damaged.size() - std::min<size_t>(damaged.size(), 4096)); break;
      case 2: damaged.clear(); break;
      case 3: damaged = read_text_file(older + "/" + name); break;
      case 4:
        if (name == kManifestName || other == kManifestName) continue;  // the manifest is no shard
        folder.put(other, content);
        damaged = other_content;
        break;
      default: {
        char& byte = damaged[below(damaged.size())];
        byte = static_cast<char>(byte ^ (1 << below(8)));
      }
    }
    if (damaged == content) continue;  // passed-through tensors are the same in every step
    folder.put(name, damaged);
    return damaged == other_content ? std::min(name, other) : name;
  }
}

void damage_many_times(int cases, uint32_t seed) {
  Folder folder(3000, 30'000);  // files of several blocks
  REQUIRE(folder.sound.size() >= 6);
  std::mt19937 random(seed);
  for (int trial = 0; trial < cases; ++trial) {
    CAPTURE(trial, seed);
    folder.check_found(damage(folder, random));
    for (const auto& [name, content] : folder.sound)
      if (read_text_file(folder.newest + "/" + name) != content) folder.put(name, content);
  }
  CHECK(Content(20, 3000).equals(OpenCheckpoint(folder.newest)));
}

TEST_CASE("50 random flips, cuts and mix-ups are found") { damage_many_times(50, 1); }

TEST_CASE("500 random flips, cuts and mix-ups are found", "[slow]") { damage_many_times(500, 2); }

TEST_CASE("nothing sound: an error instead of a start from scratch") {
  Folder folder;
  for (const int64_t step : {10, 20})
    fs::resize_file(folder.store.step_path(step) + "/model-00001-of-00002.safetensors", 9);
  try {
    folder.store.newest_complete();
    FAIL("accepted");
  } catch (const CheckpointError& e) {
    CHECK_THAT(e.what(), ContainsSubstring("none of the 2 checkpoints is sound"));
    CHECK_THAT(e.what(), ContainsSubstring("step-000000020/model-00001-of-00002.safetensors"));
  }
}

TEST_CASE("a folder under the name of another step is refused, under any other name accepted") {
  Folder folder;
  fs::copy(folder.newest, folder.store.step_path(30));
  CHECK_THROWS_AS(OpenCheckpoint(folder.store.step_path(30)), CheckpointError);
  CHECK_THROWS_AS(OpenCheckpoint(folder.store.step_path(30) + "/"), CheckpointError);
  fs::copy(folder.newest, folder.scratch.path() + "/mine");
  CHECK(Content(20).equals(OpenCheckpoint(folder.scratch.path() + "/mine")));
  CHECK_THROWS_AS(OpenCheckpoint(folder.scratch.path() + "/none"), CheckpointError);
}

TEST_CASE("a manifest that promises other tensors than the files hold is refused") {
  Folder folder;
  const auto refused = [&](const std::function<void(Manifest&)>& change) {
    Manifest manifest = parse_manifest(folder.sound[kManifestName], "m");
    change(manifest);
    folder.put(kManifestName, manifest_text(manifest));
    folder.check_found(folder.newest);
  };
  refused([](Manifest& m) { m.tensors[0].shape[0] += 1; });
  refused([](Manifest& m) { m.tensors[0].dtype = DType::kI32; });
  refused([](Manifest& m) { m.tensors[0].name = "other"; });
  refused([](Manifest& m) { m.tensors.pop_back(); });
}

}  // namespace
}  // namespace esm::checkpoint
