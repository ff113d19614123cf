// The backward of rotary positions for FP8 GEMMs; CPU twin: ops/rotary.h, rounded to BF16, then kernels/fp8_math.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/fp8_out.h"

namespace esm::kernels {

/// Whether this kernel takes heads of that size: multiples of 16 up to 128. (Others: kernels/rotary.h, then
/// kernels/quantize.h.)
bool rotary_fp8_supports(int64_t head_dim);

/// to = dqkv [tokens, 3, heads, head_dim] with dq and dk turned back, as kernels/rotary.h does it with `inverse`; the
/// result in BF16 is not stored. tokens is a multiple of kFp8Multiple; dqkv BF16, 16-byte aligned, as the tables are.
/// Rows from *row_count on (device memory; null: all rows count) are not looked at, nor are their positions: their
/// bytes are 0, and they are outside amax and sums. sums += column sums before rounding (FP32: partial sums of tiles,
/// then in their order). Without any order it measures. Bytes moved: tokens * 3 * heads * head_dim * (2 + 1 for each
/// order), and with sums 1/16 more per 128 rows read (under 2 %).
struct RotaryFp8BackwardArgs {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  const void* dqkv = nullptr;
  const int32_t* positions = nullptr;  // [tokens]
  const float* cos = nullptr;          // [max_position, head_dim / 2]
  const float* sin = nullptr;
  const int32_t* row_count = nullptr;
  Fp8Out to;                  // [tokens, 3 * heads * head_dim]
  float* sums = nullptr;      // null, or [3 * heads * head_dim], added to: bias gradient
  void* workspace = nullptr;  // rotary_fp8_backward_workspace() bytes, with sums
};
size_t rotary_fp8_backward_workspace(int64_t tokens, int64_t heads, int64_t head_dim);
cudaError_t launch(const RotaryFp8BackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
