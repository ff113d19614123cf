// Rotary positions and the geometry of a packed micro-batch; CPU twin: ops/rotary.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// Turns q and k of qkv [tokens, 3, heads, head_dim] in place, NeoX pairing (element i with i + head_dim / 2):
/// (a, b) -> (a cos - b sin, b cos + a sin) at the token's position; `inverse` turns back (the backward of turning).
/// head_dim is a multiple of 8 from 8 to 256; tables [max_position, head_dim / 2] FP32; qkv 16-byte aligned.
/// Bytes moved: tokens * heads * head_dim * 4E. With `sums`: sums[c] += sum over tokens of the result's column c, v
/// included (the bias gradient of the projection), FP32 in an order that depends on the shape only; E more per element
/// of v. Head dims that are no multiple of 16 are read again for it.
struct RotaryArgs {
  DType dtype = DType::kBF16;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  void* qkv = nullptr;
  const int32_t* positions = nullptr;  // [tokens]
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool inverse = false;
  float* sums = nullptr;      // [3 * heads * head_dim]; null: not wanted
  void* workspace = nullptr;  // with sums: rotary_sums_workspace() bytes, 16-byte aligned
};
size_t rotary_sums_workspace(int64_t tokens, int64_t heads, int64_t head_dim);
cudaError_t launch(const RotaryArgs& args, cudaStream_t stream);

/// Per token its position in its segment, the s with cu_seqlens[s] <= t < cu_seqlens[s + 1].
/// cu_seqlens [segments + 1] starts at 0 and ends at `tokens`; unused places repeat `tokens`.
struct PackGeometryArgs {
  int64_t tokens = 0;
  int64_t segments = 0;  // capacity
  const int32_t* cu_seqlens = nullptr;
  int32_t* positions = nullptr;  // [tokens]
};
cudaError_t launch(const PackGeometryArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
