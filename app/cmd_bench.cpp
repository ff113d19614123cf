// esmtrain bench step
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "app/subcommands.h"
#include "base/check.h"
#include "base/units.h"
#include "config/config.h"
#include "train/bench_step.h"

namespace esm::app {
namespace {

void print_result(const train::BenchStepResult& r) {
  const auto line = [](const char* name, const std::string& value) { std::printf("%-22s %s\n", name, value.c_str()); };
  line("step", fmt::format("{:.2f} ms (fastest {:.2f}, slowest {:.2f})", r.median_ms, r.fastest_ms, r.slowest_ms));
  line("tokens a step",
       fmt::format("{} real, {} slots", with_thousands(r.real_tokens), with_thousands(r.padded_tokens)));
  line("tokens/s", fmt::format("{} real, {} slots", with_thousands(static_cast<int64_t>(r.real_tokens_per_s())),
                               with_thousands(static_cast<int64_t>(r.padded_tokens_per_s()))));
  line("TFLOP/s", fmt::format("{:.1f} ({:.4g} FLOP a token, effective length {:.0f})", r.tflops(), r.flops_per_token,
                              r.effective_seqlen));
  double sum = 0;
  for (const device::PhaseTime& phase : r.phases) {
    sum += phase.milliseconds;
    line(("  " + phase.name).c_str(), fmt::format("{:8.2f} ms {:5.1f} % {:5} times", phase.milliseconds,
                                                  100 * phase.milliseconds / r.median_ms, phase.count));
  }
  if (!r.phases.empty())
    line("  the rest", fmt::format("{:8.2f} ms {:5.1f} %", r.median_ms - sum, 100 * (1 - sum / r.median_ms)));
  line("loss", fmt::format("{:.4f} at first, {:.4f} at last", r.first_loss, r.last_loss));
  if (r.device_bytes > 0)
    line("device memory", fmt::format("{} in use, {} predicted (ratio {:.3f})", human_bytes(r.device_bytes),
                                      human_bytes(r.predicted_bytes),
                                      static_cast<double>(r.device_bytes) / static_cast<double>(r.predicted_bytes)));
}

int step(int argc, char** argv) {
  std::string path;
  train::BenchStepOptions options;
  std::vector<config::Override> overrides;
  Args args("bench step", "Times the training step of a config on synthetic proteins: no data, no checkpoints.");
  args.option(path, "--config", "CONFIG", "YAML file.", Args::kRequired)
      .option(options.seqlen, "--seqlen", "N", "Tokens of every sequence; 0: lengths as proteins have them.")
      .option(options.warmup_steps, "--warmup", "N", "Steps before the measured ones.")
      .option(options.steps, "--steps", "N", "Measured steps; the median is reported.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain bench step --config configs/esm2_650m.yaml --train.micro_batches 1", "one micro-batch a step");
  if (!args.parse(argc, argv)) return 0;
  if (options.steps < 1 || options.warmup_steps < 0)
    fail<ConfigError>("--steps {} --warmup {}: at least 1 and 0 are wanted", options.steps, options.warmup_steps);

  train::RunConfig config;
  config::load(config, path, overrides);
  print_result(train::bench_step(config, options));
  return 0;
}

constexpr std::array kCommands{
    Subcommand{"step", "time the training step", step},
};

}  // namespace

int cmd_bench(int argc, char** argv) {
  return run_subcommand("esmtrain bench", "Measures speed on this machine.", kCommands, argc, argv);
}

}  // namespace esm::app
