// Batches for `esmtrain bench`: synthetic proteins, or those that a config trains on.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/run_config.h"

namespace esm::train {

struct BenchBatchOptions {
  /// The training data of the config, drawn, packed and masked as in training; else random residues.
  bool real_data = false;
  /// Of synthetic proteins: tokens of every sequence; 0: protein lengths, log-normal (mu 5.6, sigma 0.65 of the natural
  /// logarithm), clipped to 30 .. data.max_tokens.
  int64_t seqlen = 0;
  std::string data_cache;  // as TrainOptions
};

/// Batches without end: four synthetic ones in turn, or a data::Loader. Remembers what it gave out.
class BenchBatches {
 public:
  /// Throws DataError, ConfigError.
  BenchBatches(const RunConfig& config, const BenchBatchOptions& options);

  /// Overwrites `batch`.
  void next(data::Batch& batch);
  /// sum(l^2) / sum(l) over the sequences of all batches so far.
  double effective_seqlen() const { return squares_ / tokens_; }

 private:
  std::vector<data::Batch> synthetic_;
  std::unique_ptr<data::Loader> loader_;
  size_t next_ = 0;
  double squares_ = 0, tokens_ = 0;
};

}  // namespace esm::train
