// A training run from its configuration to its end: set-up, loop, validation, checkpoints, stop signals.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/file_system.h"
#include "config/config.h"
#include "train/run_config.h"

namespace esm::train {

struct TrainOptions {
  std::string resume = "none";                  // "none", "auto", or the folder of a checkpoint
  bool live = false;                            // standard error is a terminal: draw a live line
  std::string data_cache;                       // where FASTA is kept as shards when data.cache_dir is empty
  std::string kernel_cache;                     // where kernel choices found by timing are kept; "": nowhere
  config::Origins origins;                      // of the values in the config, for the log
  std::map<std::string, std::string> versions;  // of this program, for the manifest
  std::function<int()> stop_signal;             // number of a signal that asked for a stop, or 0
  checkpoint::FileSystem* files = nullptr;      // by which checkpoints reach the disk; null: the real one
};

enum class StopReason { kFinished, kStoppedEarly, kSignal };

struct TrainResult {
  StopReason reason = StopReason::kFinished;
  int signal = 0;          // when reason is kSignal
  std::string checkpoint;  // the last one written or resumed from; "" when none could be written
  std::string unmet;       // expectations that do not hold, a line each; "" when all do (or none was asked for)
};

/// Runs `config` until train.max_steps, until patience runs out, or until a signal; the state is saved at the end in
/// every case. Throws ConfigError, DataError, CheckpointError, Error (too many skipped steps).
TrainResult train(RunConfig config, const TrainOptions& options);

}  // namespace esm::train
