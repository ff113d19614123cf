// `esmtrain bench data`: how fast one core draws, packs and masks the training data of a config.
#pragma once
#include <cstdint>
#include <string>

#include "train/run_config.h"

namespace esm::train {

struct BenchDataResult {
  int64_t batches = 0, real_tokens = 0, padded_tokens = 0, scored_tokens = 0;
  double processor_ms = 0;

  /// Real tokens a second of one core.
  double tokens_per_s() const { return 1e3 * static_cast<double>(real_tokens) / processor_ms; }
};

/// Makes batches with data::Loader on this thread alone until `tokens` real ones are there, after as many that are not
/// measured (first reads of files and their checksums). data_cache: as TrainOptions. Throws DataError.
BenchDataResult bench_data(const RunConfig& config, int64_t tokens, const std::string& data_cache);

}  // namespace esm::train
