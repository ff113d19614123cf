// esmtrain plan CONFIG [--card-gib N] [--json] [settings]
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "base/check.h"
#include "base/json_writer.h"
#include "base/units.h"
#include "config/config.h"
#include "train/plan.h"

namespace esm::app {
namespace {

constexpr auto kRecomputeNames = nn::enum_names(nn::Recompute{});

std::string_view recompute_name(const train::RunConfig& config) {
  return kRecomputeNames[static_cast<size_t>(config.train.recompute)];
}

std::string recompute_text(const train::RunConfig& config) {
  const int64_t layers = config.train.recompute_layers;
  return std::string(recompute_name(config)) + (layers > 0 ? fmt::format(" for the first {} layers", layers) : "");
}

std::string tokens_text(int64_t tokens) {
  if (tokens == 0) return "none";
  return (tokens >= train::kMostTokens ? "at least " : "") + with_thousands(tokens);
}

void print_text(const train::RunConfig& config, const train::Plan& plan) {
  const auto line = [](const char* name, const std::string& value) { fmt::print("{:<18} {}\n", name, value); };
  line("model", fmt::format("{} parameters, {} layers x {}, {} heads", with_thousands(plan.memory.parameters),
                            config.model.layers, config.model.hidden, config.model.heads));
  line("micro-batch", fmt::format("{} tokens, {}, recompute {}", with_thousands(config.data.tokens_per_batch),
                                  precision::find_recipe(config.precision).name, recompute_text(config)));
  line("FLOP a token",
       fmt::format("{:.4g}{} (effective length {:.0f})", plan.flops_per_token,
                   plan.recompute_flops > 0 ? fmt::format(", recompute {:.4g} more", plan.recompute_flops) : "",
                   plan.effective_seqlen));
  line("checkpoint",
       fmt::format("{}; {} on disk for checkpoint.keep_last: {} and the one being written{}",
                   human_bytes(plan.memory.checkpoint_bytes), human_bytes(plan.disk_bytes), config.checkpoint.keep_last,
                   config.checkpoint.async ? "; as much host memory for the copy that is written" : ""));
  line("peak memory",
       fmt::format("{} of {}: {} {}", human_bytes(plan.memory.peak_bytes()), human_bytes(plan.place.memory_bytes),
                   plan.fits() ? "fits into" : "does not fit into", plan.place.name));
  fmt::print("\nMemory by part:\n{}", train::memory_table(plan.memory));
  fmt::print("\nLargest data.tokens_per_batch by train.recompute:\n  {:<22}", "");
  for (const std::string_view name : kRecomputeNames) fmt::print(" {:>18}", name);
  fmt::print("\n");
  bool beyond = false;
  for (const train::CardFits& card : plan.cards) {
    fmt::print("  {:<22}", card.place.name);
    for (const int64_t tokens : card.tokens) {
      fmt::print(" {:>18}", tokens_text(tokens));
      beyond = beyond || tokens > train::kTriedTokens;
    }
    fmt::print("\n");
  }
  if (beyond)
    fmt::print("Beyond {} tokens only memory has been looked at; no run has been tried.\n",
               with_thousands(train::kTriedTokens));
}

void print_json(const train::RunConfig& config, const train::Plan& plan) {
  JsonWriter json(1);
  json.begin_object();
  json.field("parameters", plan.memory.parameters);
  json.field("precision", precision::find_recipe(config.precision).name);
  json.field("tokens_per_batch", config.data.tokens_per_batch).field("recompute", recompute_name(config));
  json.field("recompute_layers", config.train.recompute_layers);
  json.field("effective_length", plan.effective_seqlen).field("flops_per_token", plan.flops_per_token);
  json.field("recompute_flops_per_token", plan.recompute_flops);
  json.field("checkpoint_bytes", plan.memory.checkpoint_bytes).field("disk_bytes", plan.disk_bytes);
  json.field("device", plan.place.name).field("device_bytes", plan.place.memory_bytes).field("fits", plan.fits());
  json.field("peak_bytes", plan.memory.peak_bytes()).field("step_bytes", plan.memory.step_bytes);
  json.field("start_bytes", plan.memory.start_bytes);
  json.key("parts").begin_array();
  for (const ops::MemoryPart& part : plan.memory.parts)
    json.begin_object().field("name", part.name).field("bytes", part.bytes).end_object();
  json.end_array().key("largest_tokens_per_batch").begin_array();
  for (const train::CardFits& card : plan.cards) {
    json.begin_object().field("device", card.place.name).field("device_bytes", card.place.memory_bytes);
    for (size_t i = 0; i < kRecomputeNames.size(); ++i) json.field(kRecomputeNames[i], card.tokens[i]);
    json.end_object();
  }
  fmt::print("{}\n", json.end_array().end_object().text());
}

}  // namespace

int cmd_plan(int argc, char** argv) {
  std::string path, option;
  double card_gib = 0;
  bool json = false;
  std::vector<config::Override> overrides;
  Args args("plan",
            "Predicts memory by part, arithmetic and disk of a training run, and how many tokens a micro-batch may "
            "have; allocates nothing and needs no GPU.");
  args.positional(path, "CONFIG", "YAML file.", Args::kOptional)
      .option(option, "--config", "CONFIG", "The same.")
      .option(card_gib, "--card-gib", "N",
              "Memory of the device in GiB; 0: the device of this machine, or an H200 (and a list of others).")
      .flag(json, "--json", "Print one JSON object on standard output.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain plan configs/esm2_650m.yaml", "what fits where")
      .example("esmtrain plan configs/esm2_3b.yaml --card-gib 79 --train.recompute selective", "a 3B model on 80 GB");
  if (!args.parse(argc, argv)) return 0;
  if (path.empty() == option.empty())
    fail<ConfigError>("esmtrain plan: one CONFIG is wanted, {}", path.empty() ? "none is given" : "two are given");
  if (!(card_gib >= 0)) fail<ConfigError>("--card-gib must be at least 0, found {}", card_gib);
  // A run wants training data; a plan does not look at them.
  overrides.insert(overrides.begin(), {.key = "data.train", .value = "any.fasta", .written = "esmtrain plan"});
  overrides.insert(overrides.begin(), {.key = "data.weights", .value = "{}", .written = "esmtrain plan"});
  overrides.insert(overrides.begin(), {.key = "data.clusters", .value = "{}", .written = "esmtrain plan"});

  train::RunConfig config;
  const config::Loaded loaded = config::load(config, path.empty() ? option : path, overrides);
  std::optional<int64_t> card_bytes;
  if (card_gib > 0) card_bytes = static_cast<int64_t>(card_gib * (1 << 30));
  const train::Plan plan = train::make_plan(config, card_bytes, loaded.origins);
  if (json)
    print_json(config, plan);
  else
    print_text(config, plan);
  return 0;
}

}  // namespace esm::app
