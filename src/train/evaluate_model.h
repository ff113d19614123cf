// `esmtrain eval`: the validation of a finished model, by itself.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/metrics.h"
#include "train/model_io.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace esm::train {

/// Evaluates the weights of `source` on `files`, read as one set named "data". `config`: how its run masked and packed;
/// its model is that of `source`. Nothing when options.stop_signal() came before the end. Throws DataError,
/// CheckpointError, ConfigError.
std::optional<std::map<std::string, EvalMetrics>> evaluate_model(const RunConfig& config, const ModelSource& source,
                                                                 const std::vector<std::string>& files,
                                                                 const TrainOptions& options);

}  // namespace esm::train
