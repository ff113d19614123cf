// Quantized products as a user meets them: settings, what the log says, statistics, warnings, a change at a resume.
#include <algorithm>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

Finished train_tiny(const ScratchFolder& folder, std::vector<std::string> flags, const std::string& more = "") {
  return run(train_command(tiny_config(folder.path(), more), std::move(flags)), in_repository());
}

int64_t occurrences(const std::string& text, const std::string& what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

std::vector<nlohmann::json> statistics_rows(const std::string& run) {
  std::vector<nlohmann::json> rows;
  std::istringstream lines(read_text_file(run + "/fp8.jsonl"));
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

}  // namespace

TEST_CASE("mistakes in the settings of quantized products have one clear message") {
  const ScratchFolder scratch("esm-fp8");
  const auto check = [&](std::vector<std::string> flags, const std::string& text) {
    const Finished done = train_tiny(scratch, std::move(flags));
    INFO(done.all());
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, ContainsSubstring(text));
    CHECK_FALSE(fs::exists(scratch.path() + "/run/checkpoints"));
  };
  check({"--precision=fp8_delay"}, "did you mean fp8_delayed?");
  check({"--precision=bf16", "--layer_precision={fp8_curent: 1}"}, "did you mean fp8_current?");
  check({"--precision=bf16", "--layer_precision={fp8_current: 2}"}, "goes beyond the model, whose layers are 1 to 1");
  check({"--precision=bf16", "--layer_precision={fp8_current: 0}"}, "layers are counted from 1");
  check({"--layer_precision={fp8_current: 1}"}, "needs a precision other than fp32");
  check({"--precision=fp8_current", "--fp8.first_layers_bf16=2"}, "fp8.first_layers_bf16");
  check({"--precision=fp8_current", "--fp8.grad_norm_low=2", "--fp8.grad_norm_high=1"}, "fp8.grad_norm_low");
  check({"--precision=fp8_delayed", "--fp8.history_step=4"}, "did you mean");
}

TEST_CASE("the log says what every product works in, for a mixed plan too") {
  const ScratchFolder scratch("esm-fp8");
  const Finished done = train_tiny(scratch, {"--train.max_steps=2", "--model.layers=4", "--precision=fp8_delayed",
                                             "--fp8.first_layers_bf16=1", "--layer_precision={nvfp4: 3}"});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  for (const std::string words :
       {"products: layer 1: BF16", "products: layers 2, 4: qkv, out, fc1, fc2: forward E4M3 (tensor, delayed) x E4M3",
        "products: layer 3: qkv, out, fc1, fc2: forward E2M1 (1x16 and tensor)", "products: head: BF16",
        "products: layers 2, 4: qkv, out, fc1, fc2: fp8_delayed: emulated on the CPU",
        "products: layer 3: qkv, out, fc1, fc2: nvfp4: emulated on the CPU"})
    CHECK_THAT(done.err, ContainsSubstring(words));
  CHECK(done.err.find("fast sums") == std::string::npos);
}

TEST_CASE("plan takes FP8, and what it costs: codes of weights") {
  const Finished done = run({ESM_EXE, "plan", "configs/esm2_650m_fp8.yaml", "--card-gib", "80"}, in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("codes of weights") && ContainsSubstring("scales") &&
                           ContainsSubstring("fits into a card of 80.0 GiB"));
  const auto bytes = [](const std::string& config) {
    const Finished json = run({ESM_EXE, "plan", config, "--json"}, in_repository());
    INFO(json.all());
    REQUIRE(json.exit_code == 0);
    const auto plan = nlohmann::json::parse(json.out);
    for (const auto& part : plan["parts"])
      if (part["name"] == "codes of weights") return part["bytes"].get<int64_t>();
    return int64_t{0};
  };
  // Two bytes for each weight of a product: 33 layers of 12 D^2.
  CHECK(bytes("configs/esm2_650m_fp8.yaml") == 2 * 33 * 12 * int64_t{1280} * 1280);
  CHECK(bytes("configs/esm2_650m.yaml") == 0);
}

TEST_CASE("sizes that FP8 tensor cores cannot take train on the CPU in every recipe, and the loss falls") {
  for (const std::string recipe : {"fp8_delayed", "fp8_current", "fp8_block", "fp8_outer", "mxfp8", "nvfp4"}) {
    const ScratchFolder scratch("esm-fp8");
    const Finished done = train_tiny(scratch, {"--train.max_steps=12", "--model.hidden=36", "--precision=" + recipe,
                                               "--fp8.statistics_every_steps=4"});
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
    CHECK_THAT(done.err, ContainsSubstring("products: layer 1: qkv, out, fc1, fc2: " + recipe));
    const auto rows = metric_rows(scratch.path() + "/run");
    const double first = nlohmann::json::parse(rows.at("step 1"))["loss"],
                 last = nlohmann::json::parse(rows.at("step 12"))["loss"];
    CHECK(last < first);
    const auto statistics = statistics_rows(scratch.path() + "/run");
    REQUIRE(statistics.size() == 3);
    CHECK(statistics[2]["step"] == 12);
    CHECK(statistics[2]["tensors"].size() == 12);  // four products of x, weight, dy
    // Scales of 32 or 128 elements are not in one table of the model.
    const bool whole = recipe == "fp8_delayed" || recipe == "fp8_current" || recipe == "nvfp4";
    CHECK(statistics[2]["tensors"][0]["amax"].is_number() == whole);
    const Finished report = run({ESM_EXE, "report", "fp8", scratch.path() + "/run"}, in_repository());
    INFO(report.all());
    CHECK(report.exit_code == 0);
  }
}

TEST_CASE("BF16 leaves no statistics, and so does every_steps: 0") {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--precision=bf16", "--fp8.statistics_every_steps=1"},
        {"--precision=fp8_delayed", "--fp8.statistics_every_steps=0"}}) {
    const ScratchFolder scratch("esm-fp8");
    auto all = flags;
    all.push_back("--train.max_steps=3");
    const Finished done = train_tiny(scratch, all);
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
    CHECK_FALSE(fs::exists(scratch.path() + "/run/fp8.jsonl"));
  }
}

TEST_CASE("gradient norms outside of the band warn once, naming the keys") {
  const ScratchFolder scratch("esm-fp8");
  const Finished high =
      train_tiny(scratch, {"--train.max_steps=5", "--precision=fp8_current", "--fp8.grad_norm_high=1e-6"});
  INFO(high.all());
  REQUIRE(high.exit_code == 0);
  CHECK(occurrences(high.err, "has left the band of fp8.grad_norm_low and fp8.grad_norm_high") == 1);
  CHECK_THAT(high.err, ContainsSubstring("warning: step 1: the gradient norm "));
  const ScratchFolder other("esm-fp8");
  const Finished low = train_tiny(other, {"--train.max_steps=5", "--precision=fp32", "--fp8.grad_norm_low=1e6"});
  INFO(low.all());
  CHECK(occurrences(low.err, "has left the band") == 1);
  const ScratchFolder third("esm-fp8");
  const Finished within =
      train_tiny(third, {"--train.max_steps=5", "--fp8.grad_norm_low=1e-9", "--fp8.grad_norm_high=1e9"});
  CHECK(within.exit_code == 0);
  CHECK(within.err.find("the band") == std::string::npos);
}

TEST_CASE("steps without anything scored neither leave the band nor come back to it") {
  const ScratchFolder scratch("esm-fp8");
  const Finished done =
      train_tiny(scratch, {"--train.max_steps=30", "--data.train", "tests/data/oddities/fasta/tiny_peptides.fasta",
                           "--data.tokens_per_batch=128", "--data.max_tokens=5", "--data.masking.rate=0.02",
                           "--precision=fp8_delayed", "--fp8.grad_norm_high=1e-9", "--fp8.statistics_every_steps=1"});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK(occurrences(done.err, "has left the band") == 1);
  CHECK(occurrences(done.err, "is back in its band") == 0);
}

TEST_CASE("a run may change between BF16 and FP8 at a resume") {
  for (const auto& [before, after] : {std::pair<std::string, std::string>{"bf16", "fp8_delayed"},
                                      {"fp8_delayed", "bf16"},
                                      {"fp8_delayed", "fp8_current"},
                                      {"fp8_current", "fp8_delayed"}}) {
    CAPTURE(before, after);
    const ScratchFolder scratch("esm-fp8");
    const std::vector<std::string> always{"--model.layers=2", "--fp8.statistics_every_steps=2",
                                          "--schedule.total_steps=8", "--resume=auto"};
    const auto go = [&](const std::string& precision, const std::string& steps) {
      auto flags = always;
      flags.insert(flags.end(), {"--precision=" + precision, "--train.max_steps=" + steps});
      return train_tiny(scratch, flags);
    };
    const Finished first = go(before, "4");
    INFO(first.all());
    REQUIRE(first.exit_code == 0);
    const Finished second = go(after, "8");
    INFO(second.all());
    REQUIRE(second.exit_code == 0);
    CHECK_THAT(second.err, ContainsSubstring("the run goes on with the new value: precision: " + before +
                                             " in the checkpoint, " + after + " now"));
    CHECK((second.err.find("has no scales for these products: the first step measures them") != std::string::npos) ==
          (after != "bf16"));
    const auto rows = metric_rows(scratch.path() + "/run");
    const double third = nlohmann::json::parse(rows.at("step 4"))["loss"],
                 last = nlohmann::json::parse(rows.at("step 8"))["loss"];
    CHECK(std::abs(last - third) < 0.5);
    CHECK(statistics_rows(scratch.path() + "/run").size() == (before == "bf16" || after == "bf16" ? 2 : 4));
    const Finished third_run = go(after, "10");
    INFO(third_run.all());
    CHECK(third_run.exit_code == 0);
    CHECK(third_run.err.find("measures them") == std::string::npos);
  }
}

TEST_CASE("a run in FP8 can be evaluated as it was validated") {
  const ScratchFolder scratch("esm-fp8");
  const std::string recipe = GENERATE("fp8_delayed", "fp8_current", "fp8_block");
  const Finished done = train_tiny(scratch, {"--train.max_steps=4", "--precision=" + recipe});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  const std::string folder = scratch.path() + "/run";
  const auto trained = nlohmann::json::parse(metric_rows(folder).at("valid 4"));
  const Finished eval = run({ESM_EXE, "eval", folder, "--data", "tests/data/protein/tiny_valid.fasta", "--json",
                             "--data.cache_dir", scratch.path() + "/cache"},
                            in_repository());
  INFO(eval.all());
  REQUIRE(eval.exit_code == 0);
  const double was = trained["valid"]["valid"]["loss"], is = nlohmann::json::parse(eval.out)["valid"]["data"]["loss"];
  // eval knows no histories: its delayed scales are measured.
  CHECK(is == Approx(was).epsilon(recipe == "fp8_delayed" ? 1e-3 : 1e-9));
}

TEST_CASE("a run that stops over a step that is not finite has named the tensors first") {
  const ScratchFolder scratch("esm-fp8");
  // The first update with this learning rate makes the second step overflow.
  const Finished done = train_tiny(
      scratch, {"--train.max_steps=5", "--train.nonfinite=stop", "--precision=fp8_current", "--schedule.kind=constant",
                "--schedule.warmup_steps=0", "--optimizer.lr=1e36", "--train.micro_batches=2"});
  INFO(done.all());
  CHECK(done.exit_code == 1);
  CHECK_THAT(done.err, ContainsSubstring("amax not finite, the last finite scale is kept: layers.0."));
  CHECK_THAT(done.err, ContainsSubstring("stopped at step 2"));
}
