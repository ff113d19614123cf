// esmtrain train CONFIG [settings] [--resume auto|PATH|none]
#include <unistd.h>

#include <csignal>

#include "app/args.h"
#include "app/commands.h"
#include "app/environment.h"
#include "app/slow_files.h"
#include "app/version.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/prepare.h"
#include "train/trainer.h"

namespace esm::app {
namespace {

int code_of_stop(int signal) { return signal == SIGINT ? kExitInterrupted : kExitSavedPleaseRequeue; }

}  // namespace

int cmd_train(int argc, char** argv) {
  std::string config_path;
  std::string resume = "none";
  int64_t slow_writes_ms = 0;
  std::vector<config::Override> overrides;
  Args args("train", "Trains the model that CONFIG describes; results go to the folder run.dir.");
  args.positional(config_path, "CONFIG", "YAML file, e.g. configs/quickstart.yaml.")
      .option(resume, "--resume", "auto|PATH|none",
              "auto: go on from the newest sound checkpoint of run.dir, or start if there is none; PATH: from this "
              "checkpoint; none: a new run, refused where there are checkpoints already.")
      .option(slow_writes_ms, "--test-slow-writes", "MS",
              "For drills: before everything that a checkpoint writes to the disk, wait so long.")
      .hide()
      .settings<train::RunConfig>(overrides)
      .example("esmtrain train configs/quickstart.yaml", "a small model on the proteins that come with the program")
      .example("esmtrain train my.yaml --optimizer.lr 1e-3 --set run.dir=runs/lr1e-3 --resume auto", "an ablation");
  if (!args.parse(argc, argv)) return 0;

  train::RunConfig config;
  const config::Loaded loaded = config::load(config, config_path, overrides);
  const StopSignals signals;
  train::TrainOptions options;
  options.resume = resume;
  options.live = ::isatty(STDERR_FILENO) != 0 && !running_in_ci();
  options.data_cache = data_cache_folder();
  options.kernel_cache = kernel_cache_folder();
  options.origins = loaded.origins;
  for (const auto& [name, version] : program_versions()) options.versions[name] = version;
  options.stop_signal = &StopSignals::received;
  SlowFiles slow_files(slow_writes_ms);
  if (slow_writes_ms > 0) options.files = &slow_files;

  train::TrainResult result;
  try {
    result = train::train(config, options);
  } catch (const data::PrepareStopped& stopped) {
    log::info("stopped by {} before training began: {}", StopSignals::name(StopSignals::received()), stopped.what());
    return code_of_stop(StopSignals::received());
  }
  if (result.reason == train::StopReason::kSignal) {
    log::info("stopped by {}; saved {}; go on with: esmtrain train {} ... --resume auto",
              StopSignals::name(result.signal), result.checkpoint, config_path);
    return code_of_stop(result.signal);
  }
  if (!result.unmet.empty()) {
    log::error("the run has ended, but not as expected:\n{}", result.unmet);
    return kExitExpectationUnmet;
  }
  log::info("done; last checkpoint {}", result.checkpoint);
  return 0;
}

}  // namespace esm::app
