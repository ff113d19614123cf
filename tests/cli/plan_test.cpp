// `esmtrain plan`, and what a run says when memory runs out.
#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

Finished plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ESM_EXE, "plan"});
  return run(std::move(arguments), in_repository());
}

nlohmann::json plan_json(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const Finished done = plan(std::move(arguments));
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  return nlohmann::json::parse(done.out);
}

}  // namespace

TEST_CASE("plan prints parts, peak, arithmetic, disk and what fits where") {
  const Finished done = plan({"configs/esm2_650m.yaml", "--card-gib", "80"});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK(done.err.empty());
  for (const std::string words :
       {"651,042,593 parameters", "FLOP a token", "parameters: first moment", "queries, keys, values",
        "CUDA context and libraries", "fits into a card of 80.0 GiB", "keep_last: 5", "selective"})
    CHECK_THAT(done.out, ContainsSubstring(words));
  CHECK(plan({"--config", "configs/esm2_650m.yaml", "--card-gib=80"}).out == done.out);
  CHECK_THAT(plan({"configs/esm2_650m.yaml", "--card-gib", "40"}).out,
             ContainsSubstring("does not fit into a card of 40.0 GiB"));
}

TEST_CASE("plan as JSON adds up, and recompute makes room") {
  const auto json = plan_json({"configs/esm2_650m.yaml", "--card-gib", "80"});
  int64_t sum = 0;
  for (const auto& part : json["parts"]) sum += part["bytes"].get<int64_t>();
  CHECK(json["step_bytes"] == sum);
  CHECK(json["peak_bytes"] == std::max(sum, json["start_bytes"].get<int64_t>()));
  CHECK(json["fits"] == true);
  CHECK(json["parameters"] == 651042593);
  CHECK(json["disk_bytes"] == json["checkpoint_bytes"].get<int64_t>() * 6);
  REQUIRE(json["largest_tokens_per_batch"].size() == 1);
  const auto& fits = json["largest_tokens_per_batch"][0];
  CHECK(fits["none"] > 65536);
  CHECK(fits["selective"] > fits["none"]);
  CHECK(fits["full"] > fits["selective"]);

  const auto full = plan_json({"configs/esm2_650m.yaml", "--card-gib", "80", "--train.recompute", "full"});
  CHECK(full["step_bytes"].get<int64_t>() * 2 < sum);
  CHECK(full["recompute_flops_per_token"] > 0);
  CHECK(full["largest_tokens_per_batch"] == json["largest_tokens_per_batch"]);
  const std::vector<std::string> some{"configs/esm2_650m.yaml",   "--card-gib", "80", "--train.recompute", "selective",
                                      "--train.recompute_layers", "17"};
  CHECK(plan_json(some)["recompute_layers"] == 17);
  CHECK_THAT(plan(some).out, ContainsSubstring("recompute selective for the first 17 layers") &&
                                 ContainsSubstring("as much host memory for the copy"));
}

TEST_CASE("plan for the CPU, for a model without data, for one that comes from elsewhere") {
  const ScratchFolder scratch("esm-plan");
  write_file_atomically(scratch.path() + "/bare.yaml", "device: cpu\nmodel: {layers: 2, hidden: 32, heads: 2}\n");
  const auto bare = plan_json({scratch.path() + "/bare.yaml"});
  CHECK(bare["device"] == "CPU");
  CHECK(bare["start_bytes"] == 0);
  write_file_atomically(scratch.path() + "/given.yaml", "init_from: tests/data/golden/hf_d16\n");
  CHECK(plan_json({scratch.path() + "/given.yaml"})["parameters"] == 156513);
}

TEST_CASE("plan refuses what a run would refuse") {
  const auto check = [](std::vector<std::string> arguments, int code, const std::string& text) {
    const Finished done = plan(std::move(arguments));
    INFO(done.all());
    CHECK(done.exit_code == code);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, ContainsSubstring(text));
  };
  check({}, 2, "one CONFIG is wanted");
  check({"configs/esm2_8m.yaml", "--config", "configs/esm2_8m.yaml"}, 2, "two are given");
  check({"configs/none.yaml"}, 2, "configs/none.yaml");
  check({"configs/esm2_8m.yaml", "--train.recompute", "selektive"}, 2, "did you mean selective?");
  check({"configs/esm2_8m.yaml", "--card-gib", "-1"}, 2, "--card-gib");
  check({"configs/esm2_8m.yaml", "--card-gb", "80"}, 2, "--card-gib");
  check({"configs/esm2_8m.yaml", "--model.hidden", "30"}, 2, "multiple of 2 * heads");
  check({"configs/esm2_8m.yaml", "--device=cuda", "--model.hidden=120"}, 2, "multiples of 8");
  check({"configs/esm2_8m.yaml", "--init_from", "none"}, 6, "none");
  check({"configs/esm2_8m.yaml", "--attention=cudnn", "--device=cuda", "--precision=fp32"}, 4, "attention: cudnn");
}

TEST_CASE("a run that runs out of memory prints the table and what would fit") {
  const ScratchFolder scratch("esm-plan");
  const Finished done =
      run({"/usr/bin/env", "ASAN_OPTIONS=allocator_may_return_null=1", ESM_EXE, "bench", "step", "--config",
           tiny_config(scratch.path()), "--device=cpu", "--data.tokens_per_batch=8796093022208"},
          in_repository());
  INFO(done.all());
  CHECK(done.exit_code == 4);
  for (const std::string words : {"you tried to allocate", "data.tokens_per_batch: 8796093022208", "layer inputs",
                                  "would fit, as data.tokens_per_batch at most: ", "with train.recompute: none"})
    CHECK_THAT(done.err, ContainsSubstring(words));
}
