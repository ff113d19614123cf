#include "kernels/partials.h"

#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kColumns = 32, kRows = 32;  // of a block: a warp reads 128 bytes of each partial row

__global__ void __launch_bounds__(kColumns* kRows) add_partials_kernel(AddPartialsArgs a) {
  __shared__ float sums[kRows][kColumns + 1];
  const int lane = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int64_t columns = a.width * a.n_outs;
  const int64_t column = blockIdx.x * static_cast<int64_t>(kColumns) + lane;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t p = row; p < a.count; p += kRows) sum += __ldcs(a.partials + p * columns + column);
  }
  sums[row][lane] = sum;
  __syncthreads();
#pragma unroll
  for (int half = kRows / 2; half > 0; half /= 2) {
    if (row < half) sums[row][lane] += sums[row + half][lane];
    __syncthreads();
  }
  if (row != 0 || column >= columns) return;
  const int which = static_cast<int>(column / a.width);
  float* out = which == 0 ? a.outs[0] : which == 1 ? a.outs[1] : a.outs[2];
  if (out != nullptr) out[column - which * a.width] += sums[0][lane];
}

}  // namespace

cudaError_t launch(const AddPartialsArgs& args, cudaStream_t stream) {
  const int64_t columns = args.width * args.n_outs;
  if (columns <= 0) return cudaSuccess;
  return start(add_partials_kernel, dim3(static_cast<unsigned>(ceil_div(columns, kColumns))), dim3(kColumns * kRows), 0,
               stream, args);
}

}  // namespace esm::kernels
