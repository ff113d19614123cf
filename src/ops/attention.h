// Bidirectional attention within each segment of a pack.
//   S = scale Q K^T;  P = softmax over keys of the segment;  O = P V;  lse = log of the softmax denominators
//   dV = P^T dO;  dP = dO V^T;  dS = P (dP - rowsum(dO O));  dQ = scale dS K;  dK = scale dS^T Q
// A token sees the tokens of its own segment only; what lies in other segments changes no bit of its result.
#pragma once
#include "ops/pack.h"
#include "ops/workspace.h"

namespace esm::ops {

/// qkv [T, 3 H K] after rotary; out [T, H K] of the same type; lse [H, T] FP32. Rows of dummy segments become 0.
struct AttentionForward {
  at::Tensor qkv, out, lse;
  int64_t heads = 0;
};
void attention(Workspace& ws, const Pack& pack, const AttentionForward& a);

/// dqkv [T, 3 H K], gradient of the rotated q and k; rows of dummy segments become 0.
struct AttentionBackward {
  at::Tensor qkv, out, lse, dout, dqkv;
  int64_t heads = 0;
};
void attention_backward(Workspace& ws, const Pack& pack, const AttentionBackward& a);

}  // namespace esm::ops
