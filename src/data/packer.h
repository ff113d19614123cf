// Forms batches from the endless stream of samples: which sequences share one, never their content.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "data/data_config.h"
#include "data/draws.h"

namespace esm::data {

/// What was given out in batches of one set.
struct SetTotals {
  int64_t sequences = 0;
  int64_t tokens = 0;  // <cls> and <eos> included
  bool operator==(const SetTotals&) const = default;
};

/// Where a packer stands between two batches. From it a packer goes on exactly as the first one would have.
struct PackerState {
  int64_t batches = 0;  // batches formed so far
  DrawState draws;
  std::vector<SetTotals> given;  // [sets]
  std::vector<Draw> pending;     // drawn, not yet in a batch; oldest first
  std::vector<int64_t> groups;   // bucketed only: sizes of the batches already cut from `pending`, in order
  bool operator==(const PackerState&) const = default;
};

/// The samples of one batch, in slot order; row_tokens > 0 (bshd): slots of a row.
struct BatchPlan {
  std::vector<Draw> samples;
  int64_t row_tokens = 0;
};

struct PackerOptions {
  int64_t budget_tokens = 8192;
  int64_t max_tokens = 1024;  // longest sample
  int64_t window = 1024;      // pending samples
  Layout layout = Layout::kPacked;
  bool bucketed = false;
  std::vector<DrawnSet> sets;
  int64_t epochs = 0;  // 0: endless; otherwise plan() ends after that many (of the only set)
  uint64_t seed = 0;   // choice of sets, order of the bucketed batches
  /// Tokens of a sample, <cls> and <eos> included; 0: left out. Never above max_tokens.
  std::function<int64_t(const Draw&)> tokens_of;
};

/// Packed layout: the oldest pending sample always comes first (so none starves), then samples in order while they fit;
/// near the end of the budget the oldest single or pair that fills it exactly is preferred, else the best fit among
/// `window` pending samples. Epochs follow each other without a border; each sample is given out once per epoch.
/// Bshd: samples in order, one a row; rows have the length of the longest, rounded up to 8. Bucketed: `window` samples
/// are sorted by length, cut into batches, and the batches given out in random order.
/// Deterministic; no input or output; a few microseconds a batch.
class Packer {
 public:
  explicit Packer(PackerOptions options) : Packer(std::move(options), PackerState{}) {}
  /// Goes on from `state`, which must belong to the same order: the same samples as tokens_of() now knows them. The
  /// budget, window and layout may be others. Throws DataError when a position is outside the order.
  Packer(PackerOptions options, const PackerState& state);

  /// Next batch into `plan`; false: the epochs are over (never when endless).
  bool next(BatchPlan& plan);
  PackerState state() const;

 private:
  struct Waiting {
    Draw sample;
    int32_t tokens = 0;
  };
  void refill();
  void cut_groups();
  void take(size_t index, BatchPlan& plan, int64_t& room);
  void take_length(int64_t tokens, BatchPlan& plan, int64_t& room);
  bool take_exact(BatchPlan& plan, int64_t& room);
  bool take_best(BatchPlan& plan, int64_t& room);
  void fill_packed(BatchPlan& plan);
  void fill_rows(BatchPlan& plan);
  int64_t longest_waiting();
  bool draw(Waiting& waiting);
  void add(const Waiting& waiting);
  int64_t row_tokens_of(size_t first, size_t count) const;

  PackerOptions options_;
  DrawStream draws_;
  int64_t batches_ = 0;
  std::vector<SetTotals> given_;
  std::deque<Waiting> waiting_;     // oldest first
  std::vector<int32_t> of_length_;  // [max_tokens + 1] how many waiting samples have that many tokens
  int64_t longest_ = 0;             // no waiting sample is longer
  std::deque<int64_t> groups_;
};

}  // namespace esm::data
