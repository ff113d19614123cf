// From a plan to a batch: reads, cuts and masks the sequences.
#pragma once
#include <cstdint>

#include "data/batch.h"
#include "data/mask.h"
#include "data/packer.h"
#include "data/samples.h"

namespace esm::data {

/// Fills batches; thread-safe, so several threads may share one. The content of a sample depends on its epoch and
/// index only, never on its neighbours.
class BatchMaker {
 public:
  /// `shuffled`: positions go through the order of their epoch; otherwise position = index. `masks`: kMask or
  /// kValidMask.
  BatchMaker(SampleList samples, Masker masker, uint64_t seed, int64_t budget_tokens, int64_t max_tokens,
             bool shuffled);

  const SampleList& samples() const { return samples_; }
  int64_t tokens_of(const PendingSample& sample) const { return samples_.tokens(index_of(sample)); }
  void fill(const BatchPlan& plan, Batch& batch) const;

 private:
  int64_t index_of(const PendingSample& sample) const;
  void add_sample(const PendingSample& sample, int64_t slot, Batch& batch) const;

  SampleList samples_;
  Masker masker_;
  uint64_t seed_;
  int64_t budget_, max_tokens_;
  bool shuffled_;
};

}  // namespace esm::data
