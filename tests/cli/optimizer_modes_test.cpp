// Low-byte optimizer modes as a user meets them: equal or nearly equal runs, exact resumes, refusals, exports.
#include <cmath>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

std::vector<std::string> mode(const std::string& master, const std::string& moments) {
  return {"--precision=bf16", "--optimizer.master=" + master, "--optimizer.moments=" + moments};
}

/// Trains `steps` steps in a folder of its own.
struct Run {
  ScratchFolder scratch{"esm-modes"};
  std::string folder = scratch.path() + "/run";
  int64_t steps;

  Run(const std::vector<std::string>& flags, int64_t steps_) : steps(steps_) {
    std::vector<std::string> all = flags;
    all.push_back(fmt::format("--train.max_steps={}", steps));
    all.push_back("--train.threads=1");
    const Finished done = run(train_command(tiny_config(scratch.path()), all), in_repository());
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
  }
  std::string exported(const std::string& format) const {
    const std::string out = scratch.path() + "/" + format;
    const Finished done = run({ESM_EXE, "convert", folder, out, "--to", format}, in_repository());
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
    return out;
  }
  /// Mean over the last 50 steps.
  double train_loss() const {
    const auto rows = metric_rows(folder);
    double sum = 0;
    for (int64_t step = steps - 49; step <= steps; ++step)
      sum += nlohmann::json::parse(rows.at(fmt::format("step {}", step)))["loss"].get<double>() / 50;
    return sum;
  }
};

}  // namespace

TEST_CASE("weights in two halves: the run, its checkpoint and its export are those of FP32 weights, bit for bit") {
  for (const char* moments : {"fp32", "fp8"}) {
    CAPTURE(moments);
    const Run whole(mode("fp32", moments), 60), halves(mode("bf16_remainder", moments), 60);
    CHECK(metric_rows(whole.folder) == metric_rows(halves.folder));
    CHECK(tensor_hashes(whole.folder, 60) == tensor_hashes(halves.folder, 60));
    CHECK(read_text_file(whole.exported("hf") + "/model.safetensors") ==
          read_text_file(halves.exported("hf") + "/model.safetensors"));
  }
}

TEST_CASE("every mode trains to the same loss, evaluates and exports what it trained") {
  const Run plain(mode("fp32", "fp32"), 300);
  for (const auto& [master, moments] :
       {std::pair{"bf16_remainder", "bf16"}, {"bf16_remainder", "fp8"}, {"bf16", "bf16"}, {"bf16", "fp8"}}) {
    CAPTURE(master, moments);
    const Run low(mode(master, moments), 300);
    UNSCOPED_INFO(fmt::format("loss {} against {}", low.train_loss(), plain.train_loss()));
    CHECK(std::abs(low.train_loss() - plain.train_loss()) < 0.01);
    CHECK(metric_rows(low.folder) != metric_rows(plain.folder));
    const auto trained = nlohmann::json::parse(metric_rows(low.folder).at("valid 300"))["valid"]["valid"]["loss"];
    for (const std::string& where : {low.folder, low.exported("hf"), low.exported("native")}) {
      CAPTURE(where);
      const Finished eval = run({ESM_EXE, "eval", where, "--data", "tests/data/protein/tiny_valid.fasta", "--json",
                                 "--seed=3", "--precision=bf16", "--data.max_tokens=128", "--data.tokens_per_batch=512",
                                 "--data.cache_dir", low.scratch.path() + "/cache"},
                                in_repository());
      INFO(eval.all());
      REQUIRE(eval.exit_code == 0);
      CHECK(nlohmann::json::parse(eval.out)["valid"]["data"]["loss"] == trained);
    }
  }
}

TEST_CASE("a run stays in its mode, and a mode that cannot be is refused") {
  const ScratchFolder scratch("esm-modes");
  const std::string config = tiny_config(scratch.path());
  const auto train = [&](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return run(train_command(config, flags), in_repository());
  };
  const Finished wrong = train({"--precision=fp32", "--optimizer.master=bf16_remainder"}, {"--train.max_steps=2"});
  CHECK(wrong.exit_code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("optimizer.master: bf16_remainder needs a precision other than fp32"));

  REQUIRE(train(mode("bf16_remainder", "bf16"), {"--train.max_steps=2"}).exit_code == 0);
  const auto resume = [&](const char* master, const char* moments) {
    return train(mode(master, moments), {"--train.max_steps=4", "--resume=auto"});
  };
  const Finished other_master = resume("bf16", "bf16"), other_moments = resume("bf16_remainder", "fp8");
  CHECK(other_master.exit_code == 2);
  CHECK_THAT(other_master.err, ContainsSubstring("optimizer.master: bf16_remainder in the checkpoint, bf16 now"));
  CHECK(other_moments.exit_code == 2);
  CHECK_THAT(other_moments.err, ContainsSubstring("optimizer.moments: bf16 in the checkpoint, fp8 now"));
  CHECK(resume("bf16_remainder", "bf16").exit_code == 0);
}

TEST_CASE("a new run in another mode starts from the weights of any") {
  const Run low(mode("bf16", "fp8"), 3);
  std::vector<std::string> flags = mode("bf16_remainder", "bf16");
  flags.push_back("--init_from=" + low.folder);
  const Run next(flags, 3);
  const auto loss = [](const Run& run) { return nlohmann::json::parse(metric_rows(run.folder).at("step 1"))["loss"]; };
  CHECK(loss(next) != loss(low));
}
