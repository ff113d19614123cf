// Moving rows between the packed tokens and the head; CPU twin: ops/cross_entropy.h (gather_rows, scatter_rows).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// Rows are dense, of row_bytes bytes (a multiple of 16), 16-byte aligned. `count` lies on the device, so that a graph
/// of fixed capacity serves every batch; at most `capacity` rows count.

/// to[i] = from[rows[i]] for i < *count, 0 for the others up to capacity.
/// Bytes moved: row_bytes * (count + capacity).
struct GatherRowsArgs {
  int64_t capacity = 0;
  int64_t row_bytes = 0;
  const int32_t* rows = nullptr;   // [capacity]; read below *count only
  const int32_t* count = nullptr;  // [1]
  const void* from = nullptr;
  void* to = nullptr;  // [capacity] rows
};
cudaError_t launch(const GatherRowsArgs& args, cudaStream_t stream);

/// to[rows[i]] = from[i] for i < *count; all other rows of `to` become 0. Rows are distinct.
/// Bytes moved: row_bytes * (total_rows + 2 * count).
struct ScatterRowsArgs {
  int64_t capacity = 0;
  int64_t total_rows = 0;
  int64_t row_bytes = 0;
  const int32_t* rows = nullptr;
  const int32_t* count = nullptr;
  const void* from = nullptr;
  void* to = nullptr;  // [total_rows] rows
};
cudaError_t launch(const ScatterRowsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
