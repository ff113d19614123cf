// Makes batches: draws, packs, cuts and masks sequences, ahead of the consumer when threads are given.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "data/packer.h"
#include "data/training_set.h"

namespace esm::data {

struct LoaderOptions {
  uint64_t seed = 0;
  int64_t max_tokens = 1024;        // longest sequence, <cls> and <eos> included
  int64_t tokens_per_batch = 8192;  // T
  Layout layout = Layout::kPacked;
  bool bucketed = false;
  Overlong overlong = Overlong::kCrop;
  int64_t window_stride = 512;
  int64_t pack_window = 1024;
  MaskingConfig masking;
  int64_t rank = 0;  // batches rank, rank + size, rank + 2 size, ... of the one global sequence of batches
  int64_t size = 1;
  int64_t threads = 0;   // 0: everything happens inside next(); fewer run, with a warning, where the system gives fewer
  int64_t prefetch = 4;  // batches held ready at most, with threads
};

LoaderOptions loader_options(const DataConfig& config, uint64_t seed, int64_t rank = 0, int64_t size = 1);

/// Position in the data, equal on every rank; independent of the number of ranks and threads.
struct LoaderState {
  PackerState packer;
  std::vector<int64_t> samples;  // [sets] of an epoch
  std::string fingerprint;       // of the training sets
  bool operator==(const LoaderState&) const = default;

  /// Epochs given out so far, with a fraction: of all sets together, or of one of them.
  double epochs() const;
  double epochs(size_t set) const;
  /// The state as plain integers for a checkpoint, and back. Throws CheckpointError when they make no sense.
  std::vector<int64_t> to_integers() const;
  static LoaderState from_integers(std::span<const int64_t> integers);
};

/// What has been given out from one set of a mixture.
struct DrawnSoFar {
  std::string name;
  int64_t sequences = 0, tokens = 0;
  double epochs = 0;
};

/// Endless training batches, from one set or a mixture. Content and order depend on data, weights, options and seed
/// only: not on threads, and the global sequence of batches not on rank and size. Samples stream from one epoch into
/// the next; a data set smaller than a batch repeats within it, each repeat an epoch of its own with other masks.
/// Memory is flat: buffers are reused.
class Loader {
 public:
  /// Starts at the beginning, or goes on after the last batch of `state`. When the data are not those of `state`
  /// (another fingerprint or number of samples), the next epoch of each set begins at once, with a warning in the log.
  /// Throws DataError when no sample is usable.
  Loader(Dataset dataset, LoaderOptions options);
  Loader(Dataset dataset, LoaderOptions options, const LoaderState& state);
  Loader(std::vector<TrainingSet> sets, LoaderOptions options);
  Loader(std::vector<TrainingSet> sets, LoaderOptions options, const LoaderState& state);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Overwrites `batch` with the next batch of this rank, taking over its buffers. Errors of loader threads (DataError)
  /// are thrown here.
  void next(Batch& batch);
  /// State after the last batch that next() gave out and its counterparts on the other ranks.
  LoaderState state() const;
  /// In words: shares of a mixture, how many sequences, how many above the limit and what happens to them.
  const std::string& summary() const;
  /// What state() says was given out from each set of a mixture; empty for a single set.
  std::vector<DrawnSoFar> drawn() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// One pass over a validation set: every sequence exactly once, in file order, packed best fit, over-long ones
/// truncated, with masks that depend on (seed, index of the sequence) only. layout, bucketed, overlong, threads are not
/// used.
class EvalLoader {
 public:
  EvalLoader(Dataset dataset, LoaderOptions options);
  ~EvalLoader();
  EvalLoader(EvalLoader&&) noexcept;
  EvalLoader& operator=(EvalLoader&&) noexcept;

  /// Batches of the pass on this rank: the same number on every rank (the last ones may hold dummies only).
  int64_t batches() const;
  /// False after the last batch; the next call begins the pass again.
  bool next(Batch& batch);
  /// In words, as Loader::summary().
  const std::string& summary() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace esm::data
