// Where the sequences of a packed micro-batch lie. Legend of this folder: T packed tokens, S segments, D model, H
// heads, K head dim, F ffn, V vocabulary, N scored rows.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::ops {

/// Segment s holds rows cu_seqlens[s] .. cu_seqlens[s + 1]; is_dummy[s] marks padding.
struct Pack {
  int64_t tokens = 0;               // T
  std::vector<int32_t> cu_seqlens;  // [S + 1]
  std::vector<uint8_t> is_dummy;    // [S]
  std::vector<int32_t> positions;   // [T] place within the segment, from 0
  int64_t max_seqlen = 0;           // longest real segment

  int64_t segments() const { return static_cast<int64_t>(is_dummy.size()); }
};

}  // namespace esm::ops
