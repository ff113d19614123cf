// What the loader hands to a model: one micro-batch of packed sequences in plain host memory.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::data {

/// One sequence (or a piece of one) inside a batch, for logs, tests and per-sequence results.
struct Segment {
  int64_t sequence = 0;  // global index in the data set
  int64_t epoch = 0;     // epoch that the draw belongs to
  int32_t start = 0;     // first residue of the piece (0 unless cropped or windowed)
  int32_t n_tokens = 0;  // tokens in the batch, <cls> and <eos> included
};

/// A micro-batch of exactly T = tokens.size() token slots (a multiple of 128), see design.md decision 5.
///
/// The slots hold the sequences one after the other; what is left over belongs to dummy segments of <pad> (token 1)
/// that score nothing. cu_seqlens has all segments, dummies included: cu_seqlens[0] = 0, cu_seqlens.back() = T,
/// strictly increasing (a backend that wants a fixed capacity pads it itself by repeating T). With the `bshd` layout
/// every row of the padded batch is one sequence followed by one dummy segment, so a model needs to know no other
/// layout.
struct Batch {
  std::vector<uint8_t> tokens;       // [T] input ids after masking
  std::vector<int32_t> cu_seqlens;   // [n_segments + 1]
  std::vector<uint8_t> is_dummy;     // [n_segments] 1: padding
  std::vector<int32_t> scored_rows;  // [N] slots that count for the loss, ascending
  std::vector<uint8_t> targets;      // [N] true token ids of those slots
  std::vector<Segment> segments;     // the real ones, in slot order
  int64_t real_tokens = 0;           // slots that are not padding
  int32_t max_seqlen = 0;            // longest segment, dummies included

  int64_t budget() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_scored() const { return static_cast<int64_t>(scored_rows.size()); }
};

}  // namespace esm::data
