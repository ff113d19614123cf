#include "checkpoint/store.h"

#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

using Steps = std::vector<int64_t>;

TEST_CASE("a checkpoint is saved and opened again, bit for bit") {
  const ScratchFolder scratch("store");
  StoreOptions options = quiet();
  options.max_file_bytes = 400;
  options.files = &FileSystem::real();
  CheckpointStore store(scratch.path() + "/run/checkpoints", options);
  CHECK_FALSE(store.newest_complete().has_value());
  const Content content(100);
  const SaveResult saved = store.save(content.request());
  CHECK(saved.path == scratch.path() + "/run/checkpoints/step-000000100");
  CHECK_FALSE(saved.already_there);
  const OpenCheckpoint opened(saved.path);
  CHECK(content.equals(opened));
  CHECK(opened.has_optimizer());
  CHECK(opened.manifest().files.size() > 4);  // shards
  CHECK(opened.manifest().counters_json == content.request().manifest.counters_json);
  CHECK(opened.manifest().data_position_json == content.request().manifest.data_position_json);
  CHECK(entries_of(store.path()) == std::vector<std::string>{"step-000000100"});

  int64_t on_disk = 0;
  for (const auto& file : fs::directory_iterator(saved.path)) on_disk += static_cast<int64_t>(file.file_size());
  CHECK(on_disk <= estimated_bytes(content.request()));
}

TEST_CASE("what a model wants is compared with what is there") {
  const ScratchFolder scratch("store");
  CheckpointStore store(scratch.path(), quiet());
  const Content five(5);
  SaveRequest request = five.request();
  const OpenCheckpoint full(store.save(request).path);
  request.exp_avg.clear();
  request.exp_avg_sq.clear();
  request.manifest.step = 6;
  const OpenCheckpoint weights(store.save(request).path);
  std::vector<ExpectedTensor> expected{{.name = "a", .shape = {40, 3}},
                                       {.name = "b.weight", .shape = {7}},
                                       {.name = "c", .shape = {2, 2, 2}},
                                       {.name = "contact.weight", .shape = {4}, .optional = true}};
  full.require(Role::kParameter, expected);
  full.require(Role::kExpAvg, expected);
  weights.require(Role::kParameter, expected);
  const auto refusal = [&](const OpenCheckpoint& opened, Role role) {
    try {
      opened.require(role, expected);
      return std::string();
    } catch (const CheckpointError& e) {
      return std::string(e.what());
    }
  };
  // Parameters beyond those with moments are not trained; an optional one without a shape fits any.
  request.manifest.step = 7;
  request.exp_avg = {five.request().exp_avg[0]};
  request.exp_avg_sq = {five.request().exp_avg_sq[0]};
  const OpenCheckpoint partly(store.save(request).path);
  CHECK(partly.tensors(Role::kExpAvg).size() == 1);
  partly.require(Role::kParameter,
                 std::vector<ExpectedTensor>{expected[0], expected[1], {.name = "c", .shape = {}, .optional = true}});
  CHECK_FALSE(weights.has_optimizer());
  CHECK_THAT(refusal(weights, Role::kExpAvg), ContainsSubstring("without optimizer state"));
  CHECK_THAT(refusal(weights, Role::kExpAvg), ContainsSubstring("exp_avg/b.weight"));
  expected[0].shape = {41, 3};
  CHECK_THAT(refusal(full, Role::kParameter), ContainsSubstring("a is F32 [40, 3] there, the model wants F32 [41, 3]"));
  expected[0] = {.name = "z", .shape = {1}};
  CHECK_THAT(refusal(full, Role::kParameter), ContainsSubstring("1 missing: z; 1 unexpected: a"));
  CHECK(full.find(Role::kParameter, "z") == nullptr);
  CHECK_THROWS_AS(full.tensor(Role::kParameter, "z"), CheckpointError);
}

TEST_CASE("saving a step again") {
  const ScratchFolder scratch("store");
  std::vector<std::string> lines;
  HookedFileSystem files([](const auto&...) {});
  CheckpointStore store(scratch.path(), quiet({}, &files, &lines));
  store.save(Content(10).request());
  CHECK(store.save(Content(10).request()).already_there);
  // Other content under the same step: swapped.
  const Content eleven(11);
  SaveRequest other = eleven.request();
  other.manifest.step = 10;
  CHECK_FALSE(store.save(other).already_there);
  {
    const OpenCheckpoint opened(store.step_path(10));
    const TensorRef& tensor = opened.tensor(Role::kParameter, "b.weight");
    CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), other.parameters[1].bytes.begin()));
  }
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});
  // A file system that cannot swap.
  files.can_exchange = false;
  CHECK_FALSE(store.save(Content(10).request()).already_there);
  CHECK(Content(10).equals(OpenCheckpoint(store.step_path(10))));
  CHECK(store.save(Content(10).request()).already_there);
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});
  // A damaged one gives way, and is kept aside.
  fs::resize_file(fs::path(store.step_path(10)) / "model-00001-of-00001.safetensors", 20);
  CHECK_FALSE(store.save(Content(10).request()).already_there);
  CHECK(Content(10).equals(OpenCheckpoint(store.step_path(10))));
  const auto names = entries_of(scratch.path());
  REQUIRE(names.size() == 2);
  CHECK_THAT(names[0], ContainsSubstring("damaged-step-000000010"));
  // Something that is not a checkpoint is never touched.
  write_file_atomically(scratch.path() + "/step-000000020", "mine");
  fs::create_directory(scratch.path() + "/step-000000030");
  CHECK_THROWS_AS(store.save(Content(20).request()), CheckpointError);
  CHECK_THROWS_AS(store.save(Content(30).request()), CheckpointError);
  CHECK(read_text_file(scratch.path() + "/step-000000020") == "mine");
  CHECK(entries_of(scratch.path()).size() == 4);
}

TEST_CASE("a step that is replaced where nothing can be swapped is there whatever fails") {
  const ScratchFolder scratch("store");
  std::vector<std::string> seen;  // where step 10 lies before every operation
  std::string broken;             // a part of the two paths of a rename that fails
  bool stays_broken = false;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    for (const StepFolder& folder : CheckpointFolder(scratch.path()).list())
      if (folder.step == 10) seen.push_back(folder.path);
    if (broken.empty() || operation != "rename" || path.find(broken) == std::string::npos) return;
    if (!stays_broken) broken.clear();
    throw CheckpointError("cannot " + operation + " " + path + ": Input/output error");
  });
  files.can_exchange = false;
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, &files));
  const std::string place = store.step_path(10), aside = scratch.path() + "/.replaced-step-000000010";
  const Content first(10), second(10, 40, 1), third(10, 40, 2);
  store.save(first.request());

  // The new one cannot take its place: the old one is put back.
  broken = place + ".tmp-";
  CHECK_THROWS_AS(store.save(second.request()), CheckpointError);
  CHECK(first.equals(OpenCheckpoint(place)));
  CHECK(entries_of(scratch.path()).size() == 1);

  // Nor can that be done: it is found under its other name, with all that is asked of it.
  stays_broken = true;
  broken = "\n" + place;
  CHECK_THROWS_AS(store.save(second.request()), CheckpointError);
  CHECK_FALSE(fs::exists(place));
  CheckpointFolder reader(scratch.path(), [](const std::string&) {});
  REQUIRE(reader.list().size() == 1);
  CHECK(reader.list()[0].path == aside);
  CHECK(first.equals(*reader.newest_complete()));
  REQUIRE(reader.complete_steps().size() == 1);
  CHECK(reader.complete_steps()[0].path == aside);
  CHECK(first.equals(*store.newest_complete()));

  // Later it can; the next save puts it back first, and then replaces it.
  broken.clear();
  seen.clear();
  store.save(second.request());
  CHECK(second.equals(OpenCheckpoint(place)));
  CHECK(entries_of(scratch.path()).size() == 1);
  CHECK(std::find(seen.begin(), seen.end(), aside) != seen.end());
  CHECK(std::find(seen.begin(), seen.end(), place) != seen.end());

  // The old one cannot be removed: no harm, and a later start removes it.
  broken = aside + "\n" + scratch.path() + "/" + std::string(kTrashPrefix);
  store.save(third.request());
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{".replaced-step-000000010", "step-000000010"});
  CHECK(third.equals(*store.newest_complete()));
  CHECK(steps_of(store) == Steps{10});
  const CheckpointStore restarted(scratch.path(), quiet());
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});

  // Put back by a later start.
  fs::rename(place, aside);
  const CheckpointStore again(scratch.path(), quiet());
  CHECK(third.equals(OpenCheckpoint(place)));
  CHECK(entries_of(scratch.path()) == std::vector<std::string>{"step-000000010"});
}

TEST_CASE("retention keeps the last K, every M, the best and the pinned") {
  const auto stored = [](int64_t step, double metric, bool pinned = false) {
    return StoredStep{.step = step, .metric = metric == 0 ? std::nullopt : std::optional(metric), .pinned = pinned};
  };
  const std::vector<StoredStep> five{stored(10, 0, true), stored(20, 2.5), stored(30, 2.6), stored(40, 0),
                                     stored(50, 0)};
  CHECK(steps_to_remove(five, {.keep_last = 1, .keep_every = 0, .keep_best = true}, 50) == Steps{30, 40});
  CHECK(steps_to_remove(five, {.keep_last = 1, .keep_every = 0, .keep_best = false}, 50) == Steps{20, 30, 40});
  CHECK(steps_to_remove(five, {.keep_last = 2, .keep_every = 15, .keep_best = true}, 50) == Steps{});
  CHECK(steps_to_remove(five, {.keep_last = 1, .keep_every = 0, .keep_best = true}, 30) == Steps{40});
  CHECK(steps_to_remove(five, {.keep_last = 99, .keep_every = 0, .keep_best = true}, 50) == Steps{});
  CHECK(best_of(std::vector{stored(10, 2.0), stored(20, 2.0)})->step == 10);
  CHECK_FALSE(best_of(std::vector{stored(10, std::numeric_limits<double>::quiet_NaN())}).has_value());
}

TEST_CASE("12 saves, keep 1, 2 and 3, across the step where the digits grow") {
  for (const int64_t keep : {1, 2, 3}) {
    const ScratchFolder scratch("store");
    size_t most = 0;
    // Counts complete folders whenever something is about to change.
    HookedFileSystem files([&](const std::string& operation, const std::string&, auto) {
      if (operation != "write") most = std::max(most, CheckpointFolder(scratch.path()).list().size());
    });
    CheckpointStore store(scratch.path(), quiet({.keep_last = keep, .keep_every = 0, .keep_best = true}, &files));
    for (int64_t step = 9'450; step <= 10'550; step += 100) {
      store.save(Content(step).request());
      CHECK(store.newest_complete()->manifest().step == step);
    }
    Steps wanted;
    for (int64_t i = 0; i < keep; ++i) wanted.push_back(10'550 - 100 * i);
    CHECK(steps_of(store) == wanted);
    CHECK(most == static_cast<size_t>(keep) + 1);
    CHECK(entries_of(scratch.path()).size() == static_cast<size_t>(keep));
  }
}

TEST_CASE("what a killed process did not clean up goes before the next save, but never the only sound one") {
  const ScratchFolder scratch("store");
  CheckpointStore(scratch.path(), quiet({.keep_last = 9})).save(Content(10).request());
  CheckpointStore(scratch.path(), quiet({.keep_last = 9})).save(Content(20).request());
  CheckpointStore(scratch.path(), quiet({.keep_last = 9})).save(Content(30).request());
  // Damage that sizes do not show.
  const std::string file = scratch.path() + "/step-000000030/model-00001-of-00001.safetensors";
  std::string content = read_text_file(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  put_file(file, content);
  bool full = true;
  HookedFileSystem files([&](const std::string& operation, const std::string&, auto) {
    if (full && operation == "write") throw DiskFullError("full");
  });
  CheckpointStore unaware(scratch.path(), quiet({.keep_last = 1}, &files));
  CHECK_THROWS_AS(unaware.save(Content(40).request()), DiskFullError);
  CHECK(steps_of(unaware) == Steps{30, 20, 10});
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, &files));
  CHECK(store.newest_complete()->manifest().step == 20);
  CHECK_THROWS_AS(store.save(Content(40).request()), DiskFullError);
  CHECK(steps_of(store) == Steps{30, 20});
  CHECK(Content(20).equals(*store.newest_complete()));
  full = false;
  store.save(Content(40).request());
  CHECK(steps_of(store) == Steps{40});
}

TEST_CASE("the best checkpoint is kept and named") {
  const ScratchFolder scratch("store");
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}));
  for (const auto& [step, metric] :
       {std::pair<int64_t, double>(1, 2.9), {2, 2.7}, {3, 2.8}, {4, std::nan("")}, {5, 0.0}}) {
    const Content content(step);
    SaveRequest request = content.request();
    if (metric != 0.0) request.manifest.metric = metric;
    store.save(request);
  }
  CHECK(steps_of(store) == Steps{5, 2});
  CHECK(store.best()->step == 2);
  CHECK(read_text_file(scratch.path() + "/best.json") ==
        "{\"step\": 2, \"metric\": 2.7000000000000002, \"folder\": \"step-000000002\"}\n");
}

TEST_CASE("alien folders, files and links are left alone and reported once") {
  const ScratchFolder scratch("store");
  fs::create_directory(scratch.path() + "/step-99999");
  fs::create_directory(scratch.path() + "/step-000099999");
  write_file_atomically(scratch.path() + "/step-000000001", "a file");
  write_file_atomically(scratch.path() + "/notes.txt", "mine");
  std::vector<std::string> lines;
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, nullptr, &lines));
  for (int64_t step = 10; step <= 40; step += 10) store.save(Content(step).request());
  CHECK(steps_of(store) == Steps{40});
  CHECK(store.newest_complete()->manifest().step == 40);
  CHECK(entries_of(scratch.path()) ==
        std::vector<std::string>{"notes.txt", "step-000000001", "step-000000040", "step-000099999", "step-99999"});
  CHECK(lines.size() == 4);
  for (const std::string& line : lines) CHECK_THAT(line, ContainsSubstring("left alone"));
}

TEST_CASE("a folder that cannot be removed is reported and does no harm") {
  const ScratchFolder scratch("store");
  std::vector<std::string> lines;
  bool read_only = false;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    const bool old = path.find("step-000000010") != std::string::npos;
    if (read_only && old && (operation == "rename" || operation == "remove_folder"))
      throw CheckpointError("cannot change " + path + ": Permission denied");
  });
  CheckpointStore store(scratch.path(), quiet({.keep_last = 1}, &files, &lines));
  store.save(Content(10).request());
  read_only = true;
  store.save(Content(20).request());
  store.save(Content(30).request());
  CHECK(steps_of(store) == Steps{30, 10});
  CHECK_FALSE(lines.empty());
  CHECK_THAT(lines[0], ContainsSubstring("an old checkpoint stays"));
  read_only = false;
  store.save(Content(40).request());
  CHECK(steps_of(store) == Steps{40});
}

TEST_CASE("leftovers of dead processes are removed, those of living ones are not") {
  const ScratchFolder scratch("store");
  const std::string host = [&] {
    // The name that a store gives to its folders says this host's name.
    std::string seen;
    HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
      if (operation == "make_folder" && path.find(".tmp-") != std::string::npos)
        seen = fs::path(path).filename().string();
    });
    CheckpointStore(scratch.path(), quiet({}, &files)).save(Content(10).request());
    return parse_temporary_name(seen)->host;
  }();
  const auto make = [&](const std::string& name) {
    fs::create_directory(scratch.path() + "/" + name);
    write_file_atomically(scratch.path() + "/" + name + "/model-00001-of-00001.safetensors", "half");
  };
  make("step-000000020.tmp-" + host + "-999999999-00ff");                           // no such process
  make("step-000000020.tmp-" + host + "-" + std::to_string(::getpid()) + "-00ff");  // our number, another life
  make("step-000000020.tmp-" + host + "-1-00ff");                                   // process 1 lives
  make("step-000000010.tmp-other-node-77-00ff");                                    // another host, passed
  make("step-000000020.tmp-other-node-77-00ff");                                    // another host, ahead
  make(".trash-step-000000005-00ff-1");
  CheckpointStore store(scratch.path(), quiet());
  std::vector<std::string> left{"step-000000010", "step-000000020.tmp-" + host + "-1-00ff",
                                "step-000000020.tmp-other-node-77-00ff"};
  std::sort(left.begin(), left.end());
  CHECK(entries_of(scratch.path()) == left);
  store.save(Content(20).request());
  CHECK(entries_of(scratch.path()) ==
        std::vector<std::string>{"step-000000010", "step-000000020", "step-000000020.tmp-" + host + "-1-00ff"});
  CHECK(parse_temporary_name("step-000000020.tmp-a-b-c-12-00ff")->host == "a-b-c");
  CHECK_FALSE(parse_temporary_name("step-000000020.tmp-12-00ff").has_value());
}

TEST_CASE("an abandoned branch is discarded") {
  const ScratchFolder scratch("store");
  CheckpointStore store(scratch.path(), quiet({.keep_last = 9}));
  for (int64_t step = 10; step <= 50; step += 10) store.save(Content(step).request());
  write_file_atomically(store.step_path(40) + "/pinned", "");
  CHECK(store.discard_newer_than(20).size() == 2);
  CHECK(steps_of(store) == Steps{40, 20, 10});
  CHECK_THROWS_AS(store.discard_newer_than(30), CheckpointError);
  // A pinned one is kept by retention too.
  CheckpointStore strict(scratch.path(), quiet({.keep_last = 1}));
  strict.save(Content(60).request());
  CHECK(steps_of(strict) == Steps{60, 40});
}

}  // namespace
}  // namespace esm::checkpoint
