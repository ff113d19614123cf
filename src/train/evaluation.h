// Validation: loss, perplexity and accuracy of named sets on fixed masks.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "data/loader.h"
#include "dist/comm.h"
#include "models/model.h"
#include "train/metrics.h"

namespace esm::train {

struct EvalOptions {
  int64_t max_batches = 0;                         // of each set; 0: all
  std::function<bool()> should_stop;               // asked before each batch; may be empty
  std::function<void(const std::string&)> status;  // "validating NAME 3/40"; may be empty
};

/// Named validation sets, opened once; every evaluation sees the same batches with the same masks.
class Evaluator {
 public:
  /// options: seed, max_tokens, tokens_per_batch, pack_window and masking of the run; rank and size of the process.
  Evaluator(std::map<std::string, data::Dataset> sets, const data::LoaderOptions& options);

  bool empty() const { return sets_.empty(); }
  /// First set by name ("" without sets).
  std::string first_name() const;

  /// One pass over every set. Nothing when should_stop() said yes before the end. A set in which nothing is scored
  /// gives NaN for its loss.
  std::optional<std::map<std::string, EvalMetrics>> run(models::Model& model, dist::Comm& comm,
                                                        const EvalOptions& options);

 private:
  std::map<std::string, data::Dataset> sets_;
  data::LoaderOptions options_;
};

}  // namespace esm::train
