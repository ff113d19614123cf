#include "kernels/rows.h"

#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;  // a warp per row

struct MovedRow {
  int64_t index;
  int lane;
};

__device__ MovedRow this_row() {
  return {blockIdx.x * static_cast<int64_t>(kThreads / 32) + threadIdx.x / 32, static_cast<int>(threadIdx.x % 32)};
}

__global__ void __launch_bounds__(kThreads) gather_rows_kernel(GatherRowsArgs a) {
  const auto [i, lane] = this_row();
  if (i >= a.capacity) return;
  const bool counts = i < *a.count;
  const int64_t quads = a.row_bytes / 16;
  const uint4* from = static_cast<const uint4*>(a.from) + (counts ? a.rows[i] * quads : 0);
  uint4* to = static_cast<uint4*>(a.to) + i * quads;
#pragma unroll 5
  for (int64_t q = lane; q < quads; q += 32) to[q] = counts ? __ldcs(from + q) : make_uint4(0, 0, 0, 0);
}

__global__ void __launch_bounds__(kThreads) scatter_rows_kernel(ScatterRowsArgs a) {
  const auto [i, lane] = this_row();
  if (i >= a.capacity || i >= *a.count) return;
  const int64_t quads = a.row_bytes / 16;
  const uint4* from = static_cast<const uint4*>(a.from) + i * quads;
  uint4* to = static_cast<uint4*>(a.to) + a.rows[i] * quads;
#pragma unroll 5
  for (int64_t q = lane; q < quads; q += 32) to[q] = __ldcs(from + q);
}

dim3 grid_of(int64_t capacity) { return dim3(static_cast<unsigned>(ceil_div(capacity, kThreads / 32))); }

}  // namespace

cudaError_t launch(const GatherRowsArgs& args, cudaStream_t stream) {
  if (args.capacity <= 0) return cudaSuccess;
  if (args.row_bytes % 16 != 0 || !aligned16(args.from) || !aligned16(args.to)) return cudaErrorInvalidValue;
  return start(gather_rows_kernel, grid_of(args.capacity), dim3(kThreads), 0, stream, args);
}

cudaError_t launch(const ScatterRowsArgs& args, cudaStream_t stream) {
  if (args.row_bytes % 16 != 0 || !aligned16(args.from) || !aligned16(args.to)) return cudaErrorInvalidValue;
  if (args.total_rows > 0) {
    const cudaError_t error =
        cudaMemsetAsync(args.to, 0, static_cast<size_t>(args.total_rows * args.row_bytes), stream);
    if (error != cudaSuccess) return error;
  }
  if (args.capacity <= 0) return cudaSuccess;
  return start(scatter_rows_kernel, grid_of(args.capacity), dim3(kThreads), 0, stream, args);
}

}  // namespace esm::kernels
