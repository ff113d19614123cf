// Bidirectional attention within each segment of a pack.
//   S = scale Q K^T;  P = softmax over keys of the segment;  O = P V;  lse = log of the softmax denominators
//   dV = P^T dO;  dP = dO V^T;  dS = P (dP - rowsum(dO O));  dQ = scale dS K;  dK = scale dS^T Q
// A token sees the tokens of its own segment only; what lies in other segments changes no bit of its result.
#pragma once
#include <optional>

#include "ops/attention_cuda.h"
#include "ops/pack.h"
#include "ops/workspace.h"

namespace esm::ops {

/// Once a pack, before its first attention. On a CUDA device it chooses (and at first sight builds, which takes seconds
/// with cuDNN) the backend for the pack's capacity; without a `kind` the fastest one that can do these sizes.
struct AttentionSetup {
  int64_t heads = 0;
  int64_t head_dim = 0;
  at::ScalarType dtype = at::kFloat;
  std::optional<AttentionKind> kind;
  bool deterministic = false;  // on CUDA: bit-equal gradients from run to run
};
void begin_attention(Workspace& ws, const Pack& pack, const AttentionSetup& setup);
/// Announces to `ws` what attention over such packs will ask for. On a CUDA device the chosen backend says so at the
/// first pack; for a sketch of one (which wants setup.kind) it is predicted: ops/attention_memory.h.
void expect_attention(Workspace& ws, const AttentionSizes& sizes, const AttentionSetup& setup);

/// qkv [T, 3 H K] after rotary; out [T, H K] of the same type; lse [H, T] FP32 (on CUDA in
/// the backend's own order). Rows of dummy segments become 0 on the CPU, something finite on CUDA.
struct AttentionForward {
  at::Tensor qkv, out, lse;
  int64_t heads = 0;
};
void attention(Workspace& ws, const Pack& pack, const AttentionForward& a);

/// dqkv [T, 3 H K], gradient of the rotated q and k; rows of dummy segments become 0
/// (on CUDA: if their dout is 0).
struct AttentionBackward {
  at::Tensor qkv, out, lse, dout, dqkv;
  int64_t heads = 0;
};
void attention_backward(Workspace& ws, const Pack& pack, const AttentionBackward& a);

}  // namespace esm::ops
