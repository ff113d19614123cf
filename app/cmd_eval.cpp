// esmtrain eval CHECKPOINT --data FILE [--json]
#include <cstdio>
#include <string>

#include "app/args.h"
#include "app/commands.h"
#include "app/environment.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/open_checkpoint.h"
#include "precision/recipe.h"
#include "train/evaluate_model.h"
#include "train/setup.h"

namespace esm::app {
namespace {

using Results = std::map<std::string, train::EvalMetrics>;

// With what differs between two evaluations of the same weights.
void print_json(const train::ModelSource& source, const train::RunConfig& config, const Results& results) {
  JsonWriter json;
  json.begin_object().field("checkpoint", source.path()).field("step", source.step());
  json.field("seed", config.seed)
      .field("precision", precision::find_recipe(config.precision).name)
      .field("max_tokens", config.data.max_tokens);
  json.field("masking_rate", config.data.masking.rate).key("valid").begin_object();
  for (const auto& [name, m] : results) {
    json.key(name).begin_object();
    json.field("loss", m.loss).field("perplexity", m.perplexity).field("accuracy", m.accuracy);
    json.field("scored", m.scored).field("sequences", m.sequences).end_object();
  }
  std::printf("%s\n", json.end_object().end_object().text().c_str());
}

void print_table(const train::ModelSource& source, const train::RunConfig& config, const Results& results) {
  std::printf("%s (step %lld; seed %lld, %s, at most %lld tokens, %g %% masked)\n", source.path().c_str(),
              static_cast<long long>(source.step()), static_cast<long long>(config.seed),
              std::string(precision::find_recipe(config.precision).name).c_str(),
              static_cast<long long>(config.data.max_tokens), 100 * config.data.masking.rate);
  for (const auto& [name, m] : results)
    std::printf("%s: loss %.4f  perplexity %.3f  accuracy %.4f  (%lld sequences, %lld scored tokens)\n", name.c_str(),
                m.loss, m.perplexity, m.accuracy, static_cast<long long>(m.sequences),
                static_cast<long long>(m.scored));
}

}  // namespace

int cmd_eval(int argc, char** argv) {
  std::string checkpoint;
  std::vector<std::string> files;
  bool json = false;
  std::vector<config::Override> overrides;
  Args args(
      "eval",
      "Masked-language-model loss, perplexity and accuracy of a model on proteins, with fixed masks. A run is "
      "evaluated with its own settings (seed, precision, max_tokens, masking), any other model with the defaults: "
      "to compare two, give both the same.");
  args.positional(checkpoint, "CHECKPOINT",
                  "A run folder (its best checkpoint), a checkpoint of ours, a Hugging Face or NVIDIA folder, or a .pt "
                  "file of fair-esm.")
      .option(files, "--data", "FILE", "FASTA, CSV or TSV files, patterns or shards; given several times: one set.",
              Args::kRequired)
      .flag(json, "--json", "Print one JSON object on standard output.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain eval runs/quickstart --data valid.fasta --json", "");
  if (!args.parse(argc, argv)) return 0;

  const train::ModelSource source = train::open_model(checkpoint);
  train::RunConfig config;
  // A run wants training data; here the data that are evaluated stand for them.
  overrides.insert(overrides.begin(), {.key = "data.train", .value = files.front(), .written = "--data"});
  overrides.insert(overrides.begin(), {.key = "data.weights", .value = "{}", .written = "--data"});
  overrides.insert(overrides.begin(), {.key = "data.clusters", .value = "{}", .written = "--data"});
  // Nor is there an optimizer, whose format of weights might not go with another precision.
  overrides.insert(overrides.begin(), {.key = "optimizer.master", .value = "fp32", .written = "eval"});
  config::Loaded loaded;
  const bool native = source.format() == train::Format::kNative;
  const std::string run_yaml = native ? checkpoint::read_manifest(source.path()).config_yaml : "";
  if (!run_yaml.empty()) {
    // The checkpoint says how its run masked and packed; settings on the command line come on top.
    loaded = config::load_text(config, run_yaml, source.path() + "/manifest.json (config)", overrides);
  } else {
    // Settings by layer are checked against the model.
    overrides.insert(
        overrides.begin(),
        {.key = "model.layers", .value = std::to_string(source.config().layers), .written = source.path()});
    loaded = config::load(config, "", overrides);
  }
  train::adopt_model_config(config, source, loaded.origins);

  if (json) log::set_level(log::Level::kWarn);
  const StopSignals signals;
  train::TrainOptions options;
  options.data_cache = data_cache_folder();
  options.kernel_cache = kernel_cache_folder();
  options.stop_signal = &StopSignals::received;
  const auto results = train::evaluate_model(config, source, files, options);
  if (!results.has_value()) {
    log::warn("stopped by {}; there is no result", StopSignals::name(StopSignals::received()));
    return kExitInterrupted;
  }
  if (json)
    print_json(source, config, *results);
  else
    print_table(source, config, *results);
  return 0;
}

}  // namespace esm::app
