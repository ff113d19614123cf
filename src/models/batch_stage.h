// Brings micro-batches to where a model works.
//
// On the CPU a staged batch has the sizes of the given one. On a CUDA device all sizes are fixed, so that one captured
// graph serves every batch: T tokens (a smaller batch is filled up with dummy segments), a capacity of segments in
// powers of two, scored rows in whole chunks; dummy segments are cut so that none is longer than max_seqlen.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "nn/lm_head.h"
#include "ops/memory_part.h"
#include "ops/pack.h"

namespace esm::models {

/// Valid until the next batch is staged, as device work goes: copies are queued on the context's stream.
struct StagedBatch {
  ops::Pack pack;
  nn::LmHead::Scored scored;

  /// Sizes and addresses: equal for two batches exactly if work on them differs in nothing but the data.
  std::vector<int64_t> shape() const;
};

/// Segments of a staged batch of proteins: `tokens` in all, `max_seqlen` in a segment at most. Room is made for so many
/// at the start; more are taken when they come.
int64_t expected_segments(const Context& context, int64_t tokens, int64_t max_seqlen);

class BatchStage {
 public:
  struct Limits {
    int64_t tokens = 0;      // T
    int64_t max_seqlen = 0;  // longest real segment
    int64_t vocabulary = 0;
    int64_t chunk_rows = 0;  // of the head
  };
  BatchStage(const Context& context, const Limits& limits);
  ~BatchStage();

  /// Checks the batch; InternalError when it is not one (data::Batch) or beyond the limits.
  StagedBatch stage(const data::Batch& batch);

  ops::MemoryPart memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace esm::models
