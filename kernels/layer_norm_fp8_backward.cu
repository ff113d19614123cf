#include <algorithm>

#include "kernels/fp8.cuh"
#include "kernels/fp8_tile.cuh"
#include "kernels/layer_norm_columns.cuh"
#include "kernels/layer_norm_fp8.h"
#include "kernels/partials.h"

// The whole block takes a row; a thread owns eight columns of every row that its block takes, so that the column sums
// stay in registers. The bytes of a group of rows wait in shared memory; a thread turns what it put there itself,
// without a barrier. 32 rows make whole sectors of the transposed copies; neighbouring blocks have neighbouring groups,
// so that the lines fill up while they are in the L2 cache.
namespace esm::kernels {
namespace {

constexpr int kMaxThreads = kLayerNormFp8MaxCols / 8;

struct Plan {
  int group_rows;  // rows that wait in shared memory
  int threads;
  int blocks;
  size_t shared_bytes;  // of one transposed copy
};

Plan plan(int64_t rows, int64_t cols) {
  const bool wide = cols > kMaxThreads / 2 * 8;
  const int group_rows = wide ? 16 : 32;
  const int64_t warps = ceil_div(cols / 8, 32);
  const size_t shared = static_cast<size_t>(group_rows) * cols;
  // A multiprocessor has registers for 20 warps at 96 a thread, for 12 at 168, and 227 KiB for two copies a block.
  const int64_t by_registers = (wide ? 20 : 12) / warps, by_memory = int64_t{220} * 1024 / (2 * shared + 2048);
  const int64_t each = std::max<int64_t>(1, std::min(by_registers, by_memory));
  const int64_t blocks = std::min<int64_t>(each * kMultiprocessors, ceil_div(rows, group_rows));
  return {group_rows, static_cast<int>(32 * warps), static_cast<int>(blocks), shared};
}

// Turns the thread's eight columns of the group: 16 rows are 16 bytes of a column.
template <int kGroup>
__device__ void write_columns(const uint8_t* staged, int64_t row0, int64_t rows, int64_t cols, uint8_t* to) {
  const int64_t column = 8 * static_cast<int64_t>(threadIdx.x);
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    uint32_t words[4][kGroup / 4];  // of four columns
#pragma unroll
    for (int q = 0; q < kGroup / 4; ++q) {
      uint32_t v[4];
#pragma unroll
      for (int r = 0; r < 4; ++r)
        v[r] = *reinterpret_cast<const uint32_t*>(staged + (4 * q + r) * cols + column + 4 * quad);
      transpose4(v);
#pragma unroll
      for (int k = 0; k < 4; ++k) words[k][q] = v[k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int h = 0; h < kGroup / 16; ++h)
        if (row0 + 16 * h < rows)
          store16(to + (column + 4 * quad + k) * rows + row0 + 16 * h,
                  make_uint4(words[k][4 * h], words[k][4 * h + 1], words[k][4 * h + 2], words[k][4 * h + 3]));
  }
}

// What a round of kRows rows reads first.
template <int kRows>
struct Round {
  Vec8<Bf16> x[kRows], dy[kRows];
  float mean[kRows], rstd[kRows];

  __device__ void load(const LayerNormFp8BackwardArgs& a, int64_t row0, int64_t counted, bool has_columns) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool in_range = row0 + r < counted, valid = in_range && has_columns;
      const int64_t at = (row0 + r) * a.cols + 8 * static_cast<int64_t>(threadIdx.x);
      x[r] = valid ? load8(static_cast<const Bf16*>(a.x) + at) : zero8<Bf16>();
      dy[r] = valid ? load8(static_cast<const Bf16*>(a.dy) + at) : zero8<Bf16>();
      mean[r] = in_range ? a.mean[row0 + r] : 0.0f;
      rstd[r] = in_range ? a.rstd[row0 + r] : 0.0f;
    }
  }
};

// kRows rows at a time share one barrier; kAhead: the next ones are on their way meanwhile.
template <int kThreads, int kGroup, int kRows, bool kAhead, DType kGradient>
__global__ void __launch_bounds__(kThreads, 1) layer_norm_fp8_backward_kernel(LayerNormFp8BackwardArgs a) {
  constexpr int kValues = 2 * kRows;
  extern __shared__ __align__(16) uint8_t staged[];  // [dx, y][kGroup][cols], each only if its transpose is wanted
  __shared__ float slots[2][kThreads / 32][kValues];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int64_t column = 8 * static_cast<int64_t>(threadIdx.x);
  const bool has_columns = column < a.cols;
  const int64_t counted = counted_rows(a.rows, a.row_count);
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const bool turn_dx = a.dx8.transposed != nullptr, turn_y = a.y8.transposed != nullptr;
  uint8_t* staged_y = staged + (turn_dx ? kGroup * a.cols : 0);
  const float dx_scale = scale_of(a.dx8), y_scale = scale_of(a.y8);

  Vec8<Bf16> held_gamma = zero8<Bf16>(), held_beta = zero8<Bf16>();
  if (has_columns) {
    held_gamma = load8_shared(static_cast<const Bf16*>(a.gamma) + column);
    held_beta = load8_shared(static_cast<const Bf16*>(a.beta) + column);
  }
  Columns<Bf16, true> columns;
  Amax<Bf16> dx_amax, y_amax;

  int parity = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGroup;
  Round<kRows> ahead;
  if constexpr (kAhead) ahead.load(a, blockIdx.x * static_cast<int64_t>(kGroup), counted, has_columns);
  for (int64_t group0 = blockIdx.x * static_cast<int64_t>(kGroup); group0 < a.rows; group0 += step) {
#pragma unroll 1
    for (int first = 0; first < kGroup; first += kRows, parity ^= 1) {
      const int64_t row0 = group0 + first;
      Round<kRows> in;
      if constexpr (kAhead) {
        in = ahead;
        ahead.load(a, first + kRows < kGroup ? row0 + kRows : group0 + step, counted, has_columns);
      } else {
        in.load(a, row0, counted, has_columns);
      }
      Vec8<Bf16> residual[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        residual[r] = row0 + r < counted && has_columns && a.residual_gradient != nullptr
                          ? load8(static_cast<const Bf16*>(a.residual_gradient) + (row0 + r) * a.cols + column)
                          : zero8<Bf16>();
      float gamma[8], beta[8], sums[kValues] = {};
      hide(held_gamma.a);  // as FP32 they would stay in registers beside it
      unpack(held_gamma, gamma);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        columns.first(in.x[r], in.dy[r], gamma, in.mean[r], in.rstd[r], sums[2 * r], sums[2 * r + 1]);
      const float sum = lanes_sums<kValues>(sums);
      constexpr int kSpan = 32 / kValues;  // lanes that hold the same value
      if (threadIdx.x % kSpan == 0) slots[parity][warp][threadIdx.x % 32 / kSpan] = sum;
      __syncthreads();  // one a round: the next round writes the other half of the slots
      float total[kValues] = {};
      for (int w = 0; w < warps; ++w)
#pragma unroll
        for (int j = 0; j < kValues; ++j) total[j] += slots[parity][w][j];

      if (!has_columns) continue;
      hide(held_beta.a);
      unpack(held_beta, beta);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = row0 + r;
        if (row >= a.rows) break;
        float dx[8], y[8];
        columns.second<true>(in.x[r], in.dy[r], residual[r], gamma, beta, in.mean[r], in.rstd[r],
                             total[2 * r] * inverse, total[2 * r + 1] * inverse, dx, y);
        if (row >= counted) {
#pragma unroll
          for (int k = 0; k < 8; ++k) y[k] = 0;  // beta alone; dx is 0 already
        }
        Vec8<Bf16> dx_bf16;
        pack(dx, dx_bf16);
        dx_amax.see(dx_bf16);
        store8(static_cast<Bf16*>(a.dx) + row * a.cols + column, dx_bf16);
        unpack(dx_bf16, dx);
        const uint2 dx_bytes = fp8_bytes<kGradient>(dx, dx_scale);
        if (a.dx8.rows != nullptr) store8_bytes(a.dx8.rows + row * a.cols + column, dx_bytes);
        if (turn_dx) *reinterpret_cast<uint2*>(staged + (first + r) * a.cols + column) = dx_bytes;
        if (turn_y) {
          round_bf16(y, y_amax);
          *reinterpret_cast<uint2*>(staged_y + (first + r) * a.cols + column) = fp8_bytes<DType::kF8E4M3>(y, y_scale);
        }
      }
    }
    if (!has_columns) continue;
    if (turn_dx) write_columns<kGroup>(staged, group0, a.rows, a.cols, a.dx8.transposed);
    if (turn_y) write_columns<kGroup>(staged_y, group0, a.rows, a.cols, a.y8.transposed);
  }

  if (has_columns) {
    float* partials = static_cast<float*>(a.workspace) + blockIdx.x * 3 * a.cols + column;
    store8(partials, columns.dgamma);
    store8(partials + a.cols, columns.dbeta);
    store8(partials + 2 * a.cols, columns.dx_sum);
  }
  raise_by_block<0>(a.dx8.amax, dx_amax.bits());
  raise_by_block<1>(a.y8.amax, y_amax.bits());
}

template <DType kGradient>
cudaError_t run(const LayerNormFp8BackwardArgs& a, cudaStream_t stream) {
  const Plan p = plan(a.rows, a.cols);
  const size_t shared = p.shared_bytes * ((a.dx8.transposed != nullptr ? 1 : 0) + (a.y8.transposed != nullptr ? 1 : 0));
  const auto go = [&](void (*kernel)(LayerNormFp8BackwardArgs)) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error == cudaSuccess)
      error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
    return start(kernel, dim3(p.blocks), dim3(p.threads), shared, stream, a);
  };
  if (p.group_rows == 16) return go(layer_norm_fp8_backward_kernel<kMaxThreads, 16, 2, false, kGradient>);
  return go(layer_norm_fp8_backward_kernel<kMaxThreads / 2, 32, 4, true, kGradient>);
}

}  // namespace

size_t layer_norm_fp8_backward_workspace(int64_t rows, int64_t cols) {
  return rows <= 0 ? 0 : static_cast<size_t>(plan(rows, cols).blocks) * 3 * cols * sizeof(float);
}

cudaError_t launch(const LayerNormFp8BackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (args.rows % kFp8Multiple != 0 || args.cols < kFp8Multiple || args.cols % kFp8Multiple != 0 ||
      args.cols > kLayerNormFp8MaxCols || !aligned16(args.x) || !aligned16(args.dy) ||
      !aligned16(args.residual_gradient) || !aligned16(args.gamma) || !aligned16(args.beta) || args.dx == nullptr ||
      !aligned16(args.dx) || !usable(args.dx8, false) || !usable(args.y8, false) || args.y8.rows != nullptr ||
      args.y8.dtype != DType::kF8E4M3 || args.workspace == nullptr || !aligned16(args.workspace))
    return cudaErrorInvalidValue;
  const cudaError_t error =
      with_fp8(args.dx8.dtype, [&](auto gradient) { return run<decltype(gradient)::value>(args, stream); });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = plan(args.rows, args.cols).blocks,
                                .width = args.cols,
                                .n_outs = 3,
                                .outs = {args.dgamma, args.dbeta, args.dx_sum}},
                stream);
}

}  // namespace esm::kernels
