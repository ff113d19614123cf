// Weights of 8 bits as a user meets them: export, evaluation, a run that starts from them, refusals.
#include <cmath>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

Finished succeed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ESM_EXE);
  Finished done = run(std::move(arguments), in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  return done;
}

}  // namespace

TEST_CASE("convert --dtype fp8: smaller, evaluated, trained from, and exported again without drift") {
  const ScratchFolder scratch("convert-fp8");
  const auto at = [&](const std::string& name) { return scratch.path() + "/" + name; };
  const std::string config = tiny_config(scratch.path());
  succeed({"train", config, "--train.max_steps=20", "--train.threads=1"});
  const Finished exported = succeed({"convert", at("run"), at("fp8"), "--to", "hf", "--dtype", "fp8"});
  CHECK_THAT(exported.out, ContainsSubstring("(hf, F8_E4M3)") && ContainsSubstring(" of 12,288 weights were rounded"));

  succeed({"convert", at("fp8"), at("native"), "--to", "native"});
  for (const char* dtype : {"fp8", "source"}) {
    const Finished again = succeed({"convert", at("native"), at("again"), "--to", "hf", "--dtype", dtype, "--force"});
    CHECK_THAT(again.out, ContainsSubstring("the 12,288 weights of 8 bits are exactly those of the source"));
    for (const char* file : {"model.safetensors", "config.json"})
      CHECK(read_text_file(at("fp8/") + file) == read_text_file(at("again/") + file));
  }

  const auto loss = [&](const std::string& model, const std::string& precision) {
    const Finished done = succeed({"eval", model, "--data", "tests/data/protein/tiny_valid.fasta", "--json", "--seed=3",
                                   "--precision=" + precision, "--data.max_tokens=128", "--data.tokens_per_batch=512",
                                   "--train.threads=1", "--data.cache_dir", at("cache")});
    return nlohmann::json::parse(done.out)["valid"]["data"]["loss"].get<double>();
  };
  const double rounded = loss(at("fp8"), "fp32");
  CHECK(rounded == loss(at("native"), "fp32"));
  CHECK(rounded != loss(at("run"), "fp32"));
  CHECK(std::abs(rounded - loss(at("run"), "fp32")) < 0.01);
  CHECK(loss(at("fp8"), "fp8_delayed") == loss(at("native"), "fp8_delayed"));

  // A run from these weights; what it trains is FP32 again, and its exports say nothing of 8 bits.
  succeed({"train", config, "--run.dir", at("next"), "--init_from", at("fp8"), "--precision=fp8_delayed",
           "--train.max_steps=2", "--train.threads=1"});
  const Finished trained = succeed({"convert", at("next"), at("trained"), "--to", "hf"});
  CHECK_THAT(trained.out, ContainsSubstring("(hf, F32)"));
  CHECK_THAT(read_text_file(at("trained/config.json")), !ContainsSubstring("quantization_config"));
  CHECK_THAT(succeed({"convert", at("next"), at("trained8"), "--to", "nvidia", "--dtype", "fp8"}).out,
             ContainsSubstring("(nvidia, F8_E4M3)"));
}

TEST_CASE("convert --dtype fp8 to a checkpoint of ours is refused with the reason") {
  const ScratchFolder scratch("convert-fp8");
  const Finished done = run({ESM_EXE, "convert", ESM_SOURCE_DIR "/tests/data/golden/hf_d16", scratch.path() + "/out",
                             "--to", "native", "--dtype", "fp8"});
  INFO(done.all());
  CHECK(done.exit_code == 2);
  CHECK_THAT(done.err, ContainsSubstring("--dtype fp8: native checkpoints hold fp32"));
}
