// The fixed sizes of packed attention on a device.
#pragma once
#include <cstdint>

namespace esm::ops {

struct AttentionSizes {
  int64_t tokens = 0;    // T, all of them in a sequence
  int64_t heads = 0;     // H
  int64_t head_dim = 0;  // K, a multiple of 8
  int64_t capacity = 0;  // most sequences in a pack
  /// No sequence is longer, dummies included: the builder of a pack splits longer dummies.
  int64_t max_seqlen = 0;
  bool deterministic = false;  // bit-equal gradients from run to run
};

}  // namespace esm::ops
