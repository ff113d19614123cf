// `esmtrain inspect` through the built program.
#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {
namespace fs = std::filesystem;

Finished inspect(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ESM_EXE, "inspect"});
  return run(std::move(arguments), in_repository());
}

nlohmann::json as_json(const Finished& done) {
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK(done.err.empty());
  return nlohmann::json::parse(done.out);
}

}  // namespace

TEST_CASE("inspect: a run, the command that resumes it, its checkpoints, differences, damage") {
  const ScratchFolder scratch("inspect");
  const std::string folder = scratch.path(), run_folder = folder + "/run";
  const std::string config =
      tiny_config(folder, "eval: {every_steps: 2}\ncheckpoint: {every_steps: 2, keep_last: 3}\n");
  const Finished trained = run(train_command(config, {"--train.max_steps=4"}), in_repository());
  INFO(trained.all());
  REQUIRE(trained.exit_code == 0);
  const std::string first = run_folder + "/checkpoints/step-000000002",
                    last = run_folder + "/checkpoints/step-000000004";

  const auto json = as_json(inspect({run_folder, "--json", "--verify", "--tensors"}));
  CHECK(json["path"] == last);
  CHECK(json["format"] == "native");
  CHECK(json["step"] == 4);
  CHECK(json["model"]["hidden"] == 32);
  CHECK(json["tokens"].get<int64_t>() > 1000);
  CHECK(json["train_loss"].get<double>() > 2);
  CHECK(json["valid_loss"].get<double>() > 2);
  CHECK(json["versions"].contains("LibTorch"));
  CHECK(json["computed_on"].contains("device"));
  CHECK(json["checkpoints"].size() == 2);
  CHECK(json["resume"]["possible"] == true);
  for (const auto& file : json["files"]) CHECK(file["checked"] == "content");
  bool moments = false;
  for (const auto& tensor : json["tensors"]) {
    CHECK(tensor["not_finite"] == 0);
    moments = moments || tensor["name"] == "exp_avg_sq/layers.0.ffn.fc1.weight";
  }
  CHECK(moments);

  const Finished text = inspect({run_folder});
  CHECK_THAT(text.out, ContainsSubstring("step        4 (4 updates)") &&
                           ContainsSubstring("the run is over (step 4 of 4)") &&
                           ContainsSubstring("newest, described here") && ContainsSubstring("size as expected"));

  // The command does what it says.
  CHECK(json["resume"]["command"] == "esmtrain train " + run_folder + "/config.yaml --resume auto");
  const Finished resumed = run(
      {ESM_EXE, "train", run_folder + "/config.yaml", "--resume", "auto", "--train.max_steps", "6"}, in_repository());
  INFO(resumed.all());
  REQUIRE(resumed.exit_code == 0);
  for (const auto& [name, advice] :
       {std::pair(run_folder, "that is the folder of a run"), std::pair(first + "0", "there is no such folder")}) {
    const Finished refused = run({ESM_EXE, "train", run_folder + "/config.yaml", "--resume", name}, in_repository());
    INFO(refused.all());
    CHECK(refused.exit_code == 6);
    CHECK_THAT(refused.err, ContainsSubstring(advice) && ContainsSubstring("checkpoints"));
  }
  const auto older = as_json(inspect({first + "/", "--json"}));
  CHECK(older["resume"]["command"] == "esmtrain train " + run_folder + "/config.yaml --resume " + first);
  CHECK_THAT(older["resume"]["note"].get<std::string>(), ContainsSubstring("up to step 6"));

  const auto diff = as_json(inspect({last, "--diff", run_folder, "--json"}))["diff"];
  REQUIRE(diff["settings"].size() == 1);
  CHECK(diff["settings"][0]["key"] == "train.max_steps");
  CHECK(diff["settings"][0]["here"] == "4");
  CHECK(diff["settings"][0]["there"] == "6");
  CHECK(diff["equal_tensors"] == 0);
  CHECK(diff["tensors"][0]["max_abs"].get<double>() > 0);
  CHECK(as_json(inspect({last, "--diff", last, "--json"}))["diff"]["tensors"].empty());

  // A run that was moved says where it is now.
  fs::rename(run_folder, folder + "/moved run");
  const auto moved = as_json(inspect({folder + "/moved run", "--json"}))["resume"]["command"].get<std::string>();
  CHECK(moved ==
        "esmtrain train '" + folder + "/moved run/config.yaml' --run.dir '" + folder + "/moved run' --resume auto");

  const std::string damaged = folder + "/moved run/checkpoints/step-000000006/optimizer-00001-of-00001.safetensors";
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  const Finished whole = inspect({folder + "/moved run"});  // the newest complete one is another
  CHECK(whole.exit_code == 0);
  CHECK_THAT(whole.out, ContainsSubstring("step        4 ") && ContainsSubstring("does not count as a checkpoint"));
  const Finished one = inspect({folder + "/moved run/checkpoints/step-000000006"});
  INFO(one.all());
  CHECK(one.exit_code == 6);
  CHECK_THAT(one.err, ContainsSubstring("esmtrain: error: ") && ContainsSubstring(damaged));
  CHECK_THAT(one.out, ContainsSubstring("DAMAGED") && ContainsSubstring("not possible: it is damaged"));
}

TEST_CASE("inspect: foreign folders, wrong paths and arguments") {
  const Finished nvidia = inspect({"tests/data/golden/nv_d16/old"});
  INFO(nvidia.all());
  CHECK(nvidia.exit_code == 0);
  CHECK_THAT(nvidia.out, ContainsSubstring("NVIDIA") && ContainsSubstring("156,513 parameters"));
  const auto refused = [](const Finished& done, int exit_code, const std::string& words) {
    INFO(done.all());
    CHECK(done.exit_code == exit_code);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, ContainsSubstring(words));
  };
  refused(inspect({"no/such/folder"}), 6, "no/such/folder: no such file or folder");
  refused(inspect({"tests/data/oddities/safetensors/truncated.safetensors"}), 6, "100184 bytes expected");
  refused(inspect({"tests/data/golden/nv_d16/new", "--diff", "nowhere"}), 6, "nowhere");
  refused(inspect({}), 2, "PATH");
  refused(inspect({"tests/data/golden/nv_d16/new", "--tensor"}), 2, "did you mean --tensors");
}
