// From a plan to a batch: reads, cuts and masks the sequences.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/mask.h"
#include "data/packer.h"
#include "data/samples.h"
#include "data/training_set.h"

namespace esm::data {

/// Fills batches; thread-safe, so several threads may share one. The content of a sample depends on its set, epoch and
/// index only, never on its neighbours. Sequences are numbered through all sets.
class BatchMaker {
 public:
  struct Options {
    SampleOptions samples;
    uint64_t seed = 0;
    int64_t budget_tokens = 0;
    bool shuffled = true;  // positions go through the order of their epoch; otherwise position = index
  };
  BatchMaker(std::vector<TrainingSet> sets, Masker masker, const Options& options);

  /// [sets] what the packer is to draw from.
  std::vector<DrawnSet> drawn_sets() const;
  const std::vector<std::string>& names() const { return names_; }
  /// Of all sets: see training_set.h.
  const std::string& fingerprint() const { return fingerprint_; }
  /// Lines for the log.
  std::string summary() const;

  int64_t tokens_of(const Draw& draw) const { return samples(draw).tokens(seed_, draw.epoch, index_of(draw)); }
  void fill(const BatchPlan& plan, Batch& batch) const;

 private:
  const SampleList& samples(const Draw& draw) const { return samples_[static_cast<size_t>(draw.set)]; }
  int64_t index_of(const Draw& draw) const;
  void add_sample(const Draw& draw, int64_t slot, Batch& batch) const;

  // [sets]
  std::vector<std::string> names_;
  std::vector<SampleList> samples_;
  std::vector<double> shares_;
  std::vector<int64_t> first_sequences_;
  std::string fingerprint_;
  Masker masker_;
  uint64_t seed_;
  int64_t budget_, max_tokens_;
  bool shuffled_;
};

}  // namespace esm::data
