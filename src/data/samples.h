// What an epoch draws from: whole sequences, pieces of those that are longer than the limit, or clusters.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/clusters.h"
#include "data/data_config.h"
#include "data/dataset.h"

namespace esm::data {

/// Residues start .. start + residues - 1 of a sequence; residues 0: left out.
struct Sample {
  int64_t sequence = 0;
  int64_t start = 0;
  int64_t residues = 0;
};

struct SampleOptions {
  int64_t max_tokens = 1024;  // <cls> and <eos> included
  Overlong overlong = Overlong::kCrop;
  int64_t window_stride = 512;  // residues from one piece to the next; the last piece ends where the sequence ends
  int64_t first_sequence = 0;   // sequences of the sets before this one, so that the draws of all are independent
};

/// Samples 0 .. size() - 1. With clusters they are these, and a sample is one member, chosen anew each epoch; otherwise
/// the first dataset.size() are the sequences themselves (for the window policy: their first pieces), the further
/// pieces follow. Memory: 16 bytes for each sequence above the limit, with the window policy only.
class SampleList {
 public:
  /// Throws DataError when every sequence is left out.
  SampleList(Dataset dataset, const SampleOptions& options, std::shared_ptr<const ClusterIndex> clusters = nullptr);

  int64_t size() const { return clusters_ != nullptr ? clusters_->size() : dataset_.size() + extra_pieces_; }
  /// Tokens of a sample in `epoch`, <cls> and <eos> included; 0: left out.
  int64_t tokens(uint64_t seed, int64_t epoch, int64_t index) const;
  /// The sample in `epoch`: the member depends on (seed, epoch, cluster), all of them are equally probable (with the
  /// skip policy those within the limit); where a random crop begins depends on (seed, epoch, sequence). Both repeat
  /// after 2^24 epochs.
  Sample at(uint64_t seed, int64_t epoch, int64_t index) const;

  const Dataset& dataset() const { return dataset_; }
  /// Sequences above the limit, of those that are drawn from.
  int64_t overlong_sequences() const { return overlong_sequences_; }
  /// One line for the log.
  std::string summary() const;

 private:
  int64_t pieces(int64_t length) const;
  Sample piece(int64_t index) const;
  int64_t member(uint64_t seed, int64_t epoch, int64_t cluster) const;

  Dataset dataset_;
  std::shared_ptr<const ClusterIndex> clusters_;
  int64_t max_residues_;
  Overlong overlong_;
  int64_t stride_, first_sequence_;
  int64_t overlong_sequences_ = 0, overlong_residues_ = 0, extra_pieces_ = 0;
  std::vector<int64_t> long_sequences_;  // window policy: the sequences with further pieces
  std::vector<int64_t> first_extra_;     // and where their further pieces begin, counted from dataset.size()
};

}  // namespace esm::data
