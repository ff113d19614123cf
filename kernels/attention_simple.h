// Packed attention without tensor cores: correct for every size and type, slow. FP32 parity on the GPU, and the last
// resort on devices that no fast backend supports.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// Bidirectional attention within each sequence of a pack; formulas in ops/attention.h, sums in FP32, BF16 results
/// rounded once. One warp a row and head: 4 T H (2 + 5 backward) K max_seqlen FLOPs on the CUDA cores, keys and values
/// read once a row (from L2). Fixed order of sums, no atomics: deterministic, and a sequence's results depend on its
/// own rows only. qkv [T, 3, H, K] and out [T, H, K], both of `dtype` (FP32 or BF16), lse [H, T] FP32; K at most 256.
/// cu_seqlens [capacity + 1] on the device, cu_seqlens[0] = 0, entries beyond the last sequence repeat T.
struct AttentionSimpleArgs {
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  const int32_t* cu_seqlens = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, capacity = 0;
  float scale = 1;
};
cudaError_t launch(const AttentionSimpleArgs& args, cudaStream_t stream);

/// dqkv [T, 3, H, K] of `dtype`, written whole. delta: scratch of H T FP32.
struct AttentionSimpleBackwardArgs {
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  const int32_t* cu_seqlens = nullptr;
  const void* out = nullptr;
  const void* dout = nullptr;
  const float* lse = nullptr;
  void* dqkv = nullptr;
  float* delta = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, capacity = 0;
  float scale = 1;
};
cudaError_t launch(const AttentionSimpleBackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
