// Files of fair-esm through the built program: convert, inspect, init_from, eval; an evil one is refused.
#include <filesystem>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

const std::string kFair = ESM_SOURCE_DIR "/tests/data/fair_esm/";

Finished esmtrain(std::vector<std::string> arguments, ProcessOptions options = in_repository()) {
  arguments.insert(arguments.begin(), ESM_EXE);
  return run(std::move(arguments), std::move(options));
}

}  // namespace

TEST_CASE("a .pt file of fair-esm: inspect, convert, eval and train from it as from the Hugging Face folder") {
  const ScratchFolder scratch("esm-fair");
  const Finished inspected = esmtrain({"inspect", kFair + "tiny.pt"});
  INFO(inspected.all());
  CHECK(inspected.exit_code == 0);
  CHECK_THAT(inspected.out,
             ContainsSubstring("fair-esm (a .pt file of PyTorch)") && ContainsSubstring("tiny-contact-regression.pt"));
  const Finished compared = esmtrain({"inspect", kFair + "tiny.pt", "--diff", kFair + "hf"});
  INFO(compared.all());
  CHECK(compared.exit_code == 0);
  CHECK_THAT(compared.out, ContainsSubstring("tensors: 34 equal, 0 differ"));

  const Finished converted = esmtrain({"convert", kFair + "tiny.pt", scratch.path() + "/native", "--to", "native"});
  INFO(converted.all());
  REQUIRE(converted.exit_code == 0);
  CHECK_THAT(converted.out,
             ContainsSubstring("(fair-esm, F32)") && ContainsSubstring("with contact head") &&
                 ContainsSubstring("0 missing, 0 unexpected") &&
                 ContainsSubstring(
                     "passed through: encoder.sentence_encoder.layers.N.self_attn.rot_emb.inv_freq (2 tensors)"));

  std::string rows;
  for (const std::string& from : {kFair + "tiny.pt", kFair + "hf", scratch.path() + "/native"}) {
    const ScratchFolder one("esm-fair-run");
    const std::string config = tiny_config(one.path());
    std::string text = read_text_file(config);
    const std::string model = "model: {layers: 1, hidden: 32, heads: 2}\n";  // comes with the weights
    text.erase(text.find(model), model.size());
    write_file_atomically(config, text);
    const Finished trained = run(train_command(config, {"--init_from", from, "--train.max_steps=2"}), in_repository());
    INFO(trained.all());
    REQUIRE(trained.exit_code == 0);
    std::string found;
    for (const auto& [key, row] : metric_rows(one.path() + "/run")) found += row;
    if (rows.empty()) rows = found;
    CHECK(found == rows);
  }
}

TEST_CASE("a pickle that would run a program is refused with exit code 6, and nothing is written or run") {
  const ScratchFolder scratch("esm-evil");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"convert", kFair + "evil.pt", scratch.path() + "/out", "--to", "hf"},
        {"inspect", kFair + "evil.pt"},
        {"train", ESM_SOURCE_DIR "/configs/smoke.yaml", "--init_from", kFair + "evil.pt", "--run.dir",
         scratch.path() + "/run"}}) {
    const Finished done = esmtrain(command, {.folder = scratch.path(), .timeout_s = 60});
    INFO(done.all());
    CHECK(done.exit_code == 6);
    CHECK_THAT(done.err, ContainsSubstring("esmtrain: error: ") && ContainsSubstring("evil.pt") &&
                             ContainsSubstring(".system', which is not among the few names that weights need"));
    CHECK_FALSE(fs::exists(scratch.path() + "/pwned"));
    CHECK_FALSE(fs::exists(scratch.path() + "/out"));
  }
}
