// Precision as a run is told it.
#include "train/run_config.h"
#include <fmt/core.h>

#include "config/config.h"
#include "support/catch.h"

namespace esm::test {

using precision::Precision;
using train::RunConfig;

namespace {

constexpr char kData[] = "data: {train: a.fasta}\n";

RunConfig loaded(const std::string& yaml, const std::vector<config::Override>& overrides = {}) {
  RunConfig config;
  config::load_text(config, kData + yaml, "x.yaml", overrides);
  return config;
}

std::string error_of(const std::string& yaml) {
  try {
    loaded(yaml);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

/// The recipes of the layers, "bf16 fp8_current ".
std::string plan(const RunConfig& config) {
  std::string text;
  for (const Precision layer : config.precision_plan().layers)
    text += fmt::format("{} ", precision::find_recipe(layer).name);
  return text;
}

std::string repeated(std::string_view name, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += fmt::format("{} ", name);
  return text;
}

}  // namespace

TEST_CASE("every recipe can be chosen, for the whole model and by layer") {
  for (const precision::Recipe& recipe : precision::recipes()) {
    const RunConfig config = loaded(fmt::format("precision: {}\n", recipe.name));
    CHECK(config.precision == recipe.precision);
    CHECK(plan(config) == repeated(recipe.name, 6));
  }
  const RunConfig config = loaded(R"(precision: fp8_delayed
layer_precision: {fp8_current: 2, fp8_block: "3-4", mxfp8: [5]}
fp8: {first_layers_bf16: 1, last_layers_bf16: 1, history_steps: 16, amax_choice: most_recent, margin: 2}
)");
  CHECK(plan(config) == "bf16 fp8_current fp8_block fp8_block mxfp8 bf16 ");
  const precision::DelayedScaling delay = config.fp8.delayed_scaling();
  CHECK(delay.history_steps == 16);
  CHECK(delay.choice == kernels::AmaxChoice::kMostRecent);
  CHECK(delay.margin == 2);
  RunConfig back;
  config::load_text(back, config::to_yaml(config), "resolved.yaml");
  CHECK(back == config);
}

TEST_CASE("layers may be text, a number or a list, in a file and on the command line") {
  const std::vector<std::string> forms{"{bf16: 1-3}", "{bf16: \"1, 2-3\"}", "{bf16: [1, 2, 3]}",
                                       "{bf16: [1-2, \"3\"]}"};
  for (const std::string& form : forms) {
    INFO(form);
    const RunConfig file = loaded("precision: fp8_current\nlayer_precision: " + form + "\n");
    const RunConfig line = loaded("precision: fp8_current\n", {{"layer_precision", form, "--layer_precision"}});
    CHECK(plan(file) == repeated("bf16", 3) + repeated("fp8_current", 3));
    CHECK(plan(line) == plan(file));
  }
  const RunConfig one = loaded("layer_precision: {bf16: 6}\n", {{"layer_precision.fp8_outer", "2-3, 5", "-"}});
  CHECK(one.layer_precision == std::map<std::string, std::string>{{"bf16", "6"}, {"fp8_outer", "2-3, 5"}});
}

TEST_CASE("nonsense about precision is refused where it stands") {
  CHECK(error_of("layer_precision:\n  bf16: 7\n") ==
        "x.yaml:2: layer_precision: bf16: '7' goes beyond the model, whose layers are 1 to 6");
  CHECK(error_of("init_from: weights\nlayer_precision:\n  bf16: 7\n").empty());  // the model is not known yet
  CHECK_THAT(error_of("layer_precision: {bf16: 1-2, 3-4}\n"),
             ContainsSubstring("3-4: expected text or a list, found nothing (quote text with a comma in it)"));
  CHECK_THAT(error_of("precision: fp8_delayed\nfp8:\n  first_layers_bf16: 4\n  last_layers_bf16: 3\n"),
             ContainsSubstring("x.yaml:4: fp8.first_layers_bf16: the first 4 and last 3 layers"));
  CHECK_THAT(error_of("precision: fp8\n"), ContainsSubstring("expected one of fp32, bf16, fp8_delayed"));
  CHECK_THAT(error_of("fp8: {grad_norm_low: 2, grad_norm_high: 1.5}\n"),
             ContainsSubstring("fp8.grad_norm_low: 2 is not below grad_norm_high = 1.5"));
  CHECK(error_of("fp8: {grad_norm_low: 1, grad_norm_high: 1.5}\n").empty());
  CHECK_THAT(error_of("fp8: {margin: 11}\n"), ContainsSubstring("fp8.margin: expected from 0 to 10"));
  CHECK_THAT(error_of("fp8: {history_steps: 0}\n"), ContainsSubstring("fp8.history_steps: expected from 1"));
}

TEST_CASE("layers to be computed again must be there, and something to compute") {
  CHECK(error_of("train: {recompute: selective, recompute_layers: 6}\n").empty());
  CHECK_THAT(error_of("train:\n  recompute: full\n  recompute_layers: 7\n"),
             ContainsSubstring("x.yaml:4: train.recompute_layers: 7: the model has 6 layers"));
  CHECK_THAT(error_of("train: {recompute_layers: 2}\n"),
             ContainsSubstring("train.recompute_layers: needs train.recompute: selective or full"));
}

TEST_CASE("a BF16 copy of the weights is there in every precision but fp32") {
  for (const precision::Recipe& recipe : precision::recipes()) {
    const std::string error =
        error_of(fmt::format("precision: {}\noptimizer: {{master: bf16_remainder}}\n", recipe.name));
    if (recipe.precision == Precision::kFp32)
      CHECK_THAT(error, ContainsSubstring("optimizer.master: bf16_remainder needs a precision other than fp32"));
    else
      CHECK(error.empty());
  }
}

TEST_CASE("the example in FP8 is ESM-2 650M but for its precision") {
  const std::string folder = ESM_SOURCE_DIR "/configs/";
  RunConfig bf16, fp8;
  config::load(bf16, folder + "esm2_650m.yaml");
  config::load(fp8, folder + "esm2_650m_fp8.yaml");
  CHECK(plan(fp8) == repeated("fp8_delayed", 33));
  CHECK(fp8.run.dir != bf16.run.dir);
  fp8.run = bf16.run;
  fp8.precision = bf16.precision;
  CHECK(fp8 == bf16);
}

}  // namespace esm::test
