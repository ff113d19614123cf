// First elements of every sequence in packed attention buffers, for libraries that want offsets instead of row numbers.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// From cu_seqlens [capacity + 1] (non-decreasing; entries beyond the last sequence repeat T):
///   lengths[b] = cu_seqlens[b + 1] - cu_seqlens[b]           [capacity]
///   offsets[i][b] = cu_seqlens[b] * row_elements[i]          [capacity + 1] each
/// T * row_elements must fit int32. Integers, hence exact. Moves 4 (6 capacity + 5) bytes: a few KB, one launch a
/// batch.
struct AttentionOffsetsArgs {
  const int32_t* cu_seqlens = nullptr;
  int64_t capacity = 0;
  int32_t* lengths = nullptr;
  static constexpr int kOffsets = 3;
  int32_t* offsets[kOffsets] = {};
  int32_t row_elements[kOffsets] = {};
};

/// Queues it on `stream`. Returns the launch error.
cudaError_t launch(const AttentionOffsetsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
