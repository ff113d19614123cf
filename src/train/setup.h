// Opens what a run needs: data, model, comparison with the checkpoint that is resumed.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "data/training_set.h"
#include "models/esm2.h"
#include "train/kernel_choice.h"
#include "train/model_io.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace esm::train {

struct OpenedData {
  std::vector<data::TrainingSet> train;
  std::map<std::string, data::Dataset> valid;
};

/// Opens `paths` as one set and writes its report to the log as that of `role`. Throws DataError.
data::Dataset open_set(const RunConfig& config, const std::vector<std::string>& paths, const std::string& role,
                       const TrainOptions& options);

/// Opens training and validation sets and writes their reports to the log. Throws DataError.
OpenedData open_data(const RunConfig& config, const TrainOptions& options);

/// The run's model takes shape and options from `source`. Throws ConfigError listing every `model.` key that was given
/// a differing value on purpose.
void adopt_model_config(RunConfig& config, const ModelSource& source, const config::Origins& origins);

/// Compares the config of a checkpoint with the present one: lists what changed by its policy; throws ConfigError for a
/// change that a resume may not make.
void check_resumed_config(const checkpoint::OpenCheckpoint& checkpoint, const RunConfig& config);

/// Opens the device that config.device asks for, and says in the log which one it is. `kernel_cache`: where timed GEMM
/// plans are kept, "" for nowhere. Throws DeviceError when that is cuda and there is none, or none that this build can
/// use.
Context open_device(const RunConfig& config, const std::string& kernel_cache);

/// Builds the model for `config`. inv_freq: rotary frequencies of the file for model.inv_freq = file.
std::unique_ptr<models::Esm2> build_model(const Context& context, const RunConfig& config, const KernelChoice& kernels,
                                          bool training, const std::vector<float>& inv_freq);

/// Threads of this process when `configured` is 0.
int64_t effective_threads(int64_t configured);

/// Whether `path` exists and lies directly in `folder`.
bool is_in_folder(const std::string& path, const std::string& folder);

/// Finds the checkpoint to resume: none for "none" (throws ConfigError when the run folder holds checkpoints) and for
/// "auto" without any; otherwise opens and verifies it. A path outside the run folder is taken only while that holds no
/// checkpoints. Throws CheckpointError for a path that is no folder of a checkpoint, saying what it is.
std::optional<checkpoint::OpenCheckpoint> find_resume(const std::string& resume, checkpoint::CheckpointStore& store,
                                                      const std::string& run_dir);

}  // namespace esm::train
