// Where the sequences of a packed micro-batch lie. Legend of this folder: T packed tokens, S segments, D model, H
// heads, K head dim, F ffn, V vocabulary, N scored rows.
#pragma once
#include <cstdint>

#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// Segment s holds rows cu_seqlens[s] .. cu_seqlens[s + 1]; is_dummy[s] marks padding. The tensors lie where the model
/// is. On a CUDA device S is a fixed capacity: segments beyond the last one are empty (their cu_seqlens repeat T).
struct Pack {
  int64_t tokens = 0;      // T
  int64_t max_seqlen = 0;  // no real segment is longer (on CUDA: no segment)
  at::Tensor ids;          // [T] uint8 token ids
  at::Tensor cu_seqlens;   // [S + 1] int32
  at::Tensor is_dummy;     // [S] uint8
  at::Tensor positions;    // [T] int32: place within the segment, from 0
  at::Tensor counted;      // [1] int32: end of the last real segment; rows from there on are padding

  int64_t segments() const { return is_dummy.numel(); }
};

/// Fills positions from cu_seqlens.
void pack_positions(const Context& context, const Pack& pack);

}  // namespace esm::ops
