#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/layer_norm.h"
#include "kernels/layer_norm_columns.cuh"
#include "kernels/partials.h"

// A thread owns the same columns of every row that its block takes, so that the column sums stay in registers. A narrow
// row belongs to 8, 16 or 32 lanes of a warp (rows_kernel), a wide one to the whole block (wide_kernel).
namespace esm::kernels {
namespace {

constexpr int kRowsThreads = 128;
constexpr int kWideMaxThreads = 640;

struct Plan {
  int threads;  // of a block
  int blocks;
};

Plan wide_plan(int64_t rows, int64_t cols) {
  const int64_t vectors = cols / 8;
  const int64_t warps = ceil_div(vectors > kWideMaxThreads ? ceil_div(vectors, 2) : vectors, 32);
  const int64_t per_multiprocessor = std::max<int64_t>(1, 20 / warps);
  return {static_cast<int>(32 * warps), static_cast<int>(std::min(per_multiprocessor * kMultiprocessors, rows))};
}

Plan rows_plan(int64_t rows, int lanes) {
  const int64_t passes = ceil_div(rows, kRowsThreads / lanes);
  return {kRowsThreads, static_cast<int>(std::min<int64_t>(3 * kMultiprocessors, passes))};
}

bool is_wide(int64_t cols) { return cols > 768; }

int lanes_of(int64_t cols) {
  const int64_t vectors = cols / 8;
  if (vectors <= 8) return 8;
  if (vectors <= 16 || (vectors > 32 && vectors <= 48)) return 16;
  return 32;
}

Plan plan(int64_t rows, int64_t cols) {
  return is_wide(cols) ? wide_plan(rows, cols) : rows_plan(rows, lanes_of(cols));
}

// --- narrow rows -----------------------------------------------------------------------------------------------------

template <class T, int kLanes, int kVectors, bool kSum, bool kOutput>
__global__ void __launch_bounds__(kRowsThreads, sizeof(T) == 2 ? 3 : 2) rows_kernel(LayerNormBackwardArgs a) {
  constexpr int kRowsPerPass = kRowsThreads / kLanes;
  constexpr int kOuts = kSum ? 3 : 2;
  __shared__ float folded[kOuts * kVectors * kLanes * 8];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const int vectors = static_cast<int>(a.cols / 8);
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const T *x = static_cast<const T*>(a.x), *dy = static_cast<const T*>(a.dy);
  const T* residual = static_cast<const T*>(a.residual_gradient);
  const T *gamma = static_cast<const T*>(a.gamma), *beta = static_cast<const T*>(a.beta);

  Columns<T, kSum> columns[kVectors];
  for (int64_t pass = blockIdx.x; pass * kRowsPerPass < a.rows; pass += gridDim.x) {
    const int64_t row = pass * kRowsPerPass + group, base = row * a.cols;
    const bool in_range = row < a.rows;
    Vec8<T> rx[kVectors], rd[kVectors], rr[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = lane + i * kLanes;
      const bool valid = in_range && v < vectors;
      rx[i] = valid ? load8(x + base + 8 * v) : zero8<T>();
      rd[i] = valid ? load8(dy + base + 8 * v) : zero8<T>();
      rr[i] = valid && residual != nullptr ? load8(residual + base + 8 * v) : zero8<T>();
    }
    const float mean = in_range ? a.mean[row] : 0.0f, rstd = in_range ? a.rstd[row] : 0.0f;
    float sum_g = 0, sum_gx = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = min(lane + i * kLanes, vectors - 1);
      float eg[8];
      unpack(load8_shared(gamma + 8 * v), eg);
      columns[i].first(rx[i], rd[i], eg, mean, rstd, sum_g, sum_gx);
    }
    const float mean_g = lanes_sum<kLanes>(sum_g) * inverse, mean_gx = lanes_sum<kLanes>(sum_gx) * inverse;
    if (!in_range) continue;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = lane + i * kLanes;
      if (v >= vectors) continue;
      float eg[8], eb[8] = {}, dx[8], y[8];
      unpack(load8_shared(gamma + 8 * v), eg);
      if constexpr (kOutput) unpack(load8_shared(beta + 8 * v), eb);
      columns[i].template second<kOutput>(rx[i], rd[i], rr[i], eg, eb, mean, rstd, mean_g, mean_gx, dx, y);
      store8(static_cast<T*>(a.dx) + base + 8 * v, dx);
      if constexpr (kOutput) store8(static_cast<T*>(a.y) + base + 8 * v, y);
    }
  }

  // The groups' sums, one group after the other, then out.
  for (int g = 0; g < kRowsPerPass; ++g) {
    if (group == g) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int at = (lane + i * kLanes) * 8;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const float before[3] = {g == 0 ? 0.0f : folded[at + k],
                                   g == 0 ? 0.0f : folded[kVectors * kLanes * 8 + at + k],
                                   g == 0 || !kSum ? 0.0f : folded[(kOuts - 1) * kVectors * kLanes * 8 + at + k]};
          folded[at + k] = before[0] + columns[i].dgamma[k];
          folded[kVectors * kLanes * 8 + at + k] = before[1] + columns[i].dbeta[k];
          if constexpr (kSum) folded[2 * kVectors * kLanes * 8 + at + k] = before[2] + columns[i].dx_sum[k];
        }
      }
    }
    __syncthreads();
  }
  float* partials = static_cast<float*>(a.workspace) + blockIdx.x * kOuts * a.cols;
  for (int out = 0; out < kOuts; ++out)
    for (int c = threadIdx.x; c < a.cols; c += kRowsThreads)
      partials[out * a.cols + c] = folded[out * kVectors * kLanes * 8 + c];
}

// --- wide rows -------------------------------------------------------------------------------------------------------

// kRows rows at a time, so that their loads are in flight together and share one barrier.
template <class T, int kVectors, int kRows, bool kSum, bool kOutput>
__global__ void __launch_bounds__(kVectors == 1 ? kWideMaxThreads : 512) wide_kernel(LayerNormBackwardArgs a) {
  constexpr int kValues = 2 * kRows, kOuts = kSum ? 3 : 2;
  __shared__ float slots[2][kWideMaxThreads / 32][kValues];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int vectors = static_cast<int>(a.cols / 8);
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const T *x = static_cast<const T*>(a.x), *dy = static_cast<const T*>(a.dy);
  const T* residual = static_cast<const T*>(a.residual_gradient);

  float gamma[kVectors][8], beta[kVectors][8];
  Columns<T, kSum> columns[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int v = threadIdx.x + i * blockDim.x;
    const int safe = min(v, vectors - 1);
    unpack(load8_shared(static_cast<const T*>(a.gamma) + 8 * safe), gamma[i]);
    if constexpr (kOutput) unpack(load8_shared(static_cast<const T*>(a.beta) + 8 * safe), beta[i]);
  }

  int parity = 0;
  for (int64_t row0 = blockIdx.x * static_cast<int64_t>(kRows); row0 < a.rows;
       row0 += static_cast<int64_t>(gridDim.x) * kRows, parity ^= 1) {
    Vec8<T> rx[kRows][kVectors], rd[kRows][kVectors], rr[kRows][kVectors];
    float mean[kRows], rstd[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool in_range = row0 + r < a.rows;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int v = threadIdx.x + i * blockDim.x;
        const int64_t at = (row0 + r) * a.cols + 8 * v;
        const bool valid = in_range && v < vectors;
        rx[r][i] = valid ? load8(x + at) : zero8<T>();
        rd[r][i] = valid ? load8(dy + at) : zero8<T>();
        rr[r][i] = valid && residual != nullptr ? load8(residual + at) : zero8<T>();
      }
      mean[r] = in_range ? a.mean[row0 + r] : 0.0f;
      rstd[r] = in_range ? a.rstd[row0 + r] : 0.0f;
    }
    float sums[kValues] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        columns[i].first(rx[r][i], rd[r][i], gamma[i], mean[r], rstd[r], sums[2 * r], sums[2 * r + 1]);
    const float sum = lanes_sums<kValues>(sums);
    constexpr int kSpan = 32 / kValues;  // lanes that hold the same value
    if (threadIdx.x % kSpan == 0) slots[parity][warp][threadIdx.x % 32 / kSpan] = sum;
    __syncthreads();  // one a round: the next round writes the other half of the slots
    float total[kValues] = {};
    for (int w = 0; w < warps; ++w)
#pragma unroll
      for (int j = 0; j < kValues; ++j) total[j] += slots[parity][w][j];

#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row0 + r >= a.rows) break;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int v = threadIdx.x + i * blockDim.x;
        if (v >= vectors) continue;
        float dx[8], y[8];
        columns[i].template second<kOutput>(rx[r][i], rd[r][i], rr[r][i], gamma[i], beta[i], mean[r], rstd[r],
                                            total[2 * r] * inverse, total[2 * r + 1] * inverse, dx, y);
        const int64_t at = (row0 + r) * a.cols + 8 * v;
        store8(static_cast<T*>(a.dx) + at, dx);
        if constexpr (kOutput) store8(static_cast<T*>(a.y) + at, y);
      }
    }
  }

  float* partials = static_cast<float*>(a.workspace) + blockIdx.x * kOuts * a.cols;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int v = threadIdx.x + i * blockDim.x;
    if (v >= vectors) continue;
    store8(partials + 8 * v, columns[i].dgamma);
    store8(partials + a.cols + 8 * v, columns[i].dbeta);
    if constexpr (kSum) store8(partials + 2 * a.cols + 8 * v, columns[i].dx_sum);
  }
}

template <class T, bool kSum, bool kOutput>
cudaError_t choose(const LayerNormBackwardArgs& a, cudaStream_t stream) {
  const Plan p = plan(a.rows, a.cols);
  const auto run = [&](void (*kernel)(LayerNormBackwardArgs)) {
    return start(kernel, dim3(p.blocks), dim3(p.threads), 0, stream, a);
  };
  const int64_t vectors = a.cols / 8;
  if (is_wide(a.cols)) {
    if (vectors > kWideMaxThreads) return run(wide_kernel<T, 2, 1, kSum, kOutput>);
    return run(wide_kernel < T, 1, sizeof(T) == 2 ? 2 : 1, kSum, kOutput >);
  }
  if (vectors <= 8) return run(rows_kernel<T, 8, 1, kSum, kOutput>);
  if (vectors <= 16) return run(rows_kernel<T, 16, 1, kSum, kOutput>);
  if (vectors <= 32) return run(rows_kernel<T, 32, 1, kSum, kOutput>);
  if (vectors <= 48) return run(rows_kernel<T, 16, 3, kSum, kOutput>);
  if (vectors <= 64) return run(rows_kernel<T, 32, 2, kSum, kOutput>);
  return run(rows_kernel<T, 32, 3, kSum, kOutput>);
}

template <class T>
cudaError_t choose(const LayerNormBackwardArgs& a, cudaStream_t stream) {
  if (a.dx_sum != nullptr) return a.y != nullptr ? choose<T, true, true>(a, stream) : choose<T, true, false>(a, stream);
  return a.y != nullptr ? choose<T, false, true>(a, stream) : choose<T, false, false>(a, stream);
}

}  // namespace

size_t layer_norm_backward_workspace(int64_t rows, int64_t cols, bool dx_sum) {
  return rows <= 0 ? 0 : static_cast<size_t>(plan(rows, cols).blocks) * (dx_sum ? 3 : 2) * cols * sizeof(float);
}

cudaError_t launch(const LayerNormBackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (args.cols < 8 || args.cols % 8 != 0 || args.cols > kLayerNormMaxCols || !aligned16(args.x) ||
      !aligned16(args.dy) || !aligned16(args.residual_gradient) || !aligned16(args.dx) || !aligned16(args.y) ||
      !aligned16(args.gamma) || !aligned16(args.beta) || !aligned16(args.workspace) ||
      (args.y != nullptr && args.y == args.dx))
    return cudaErrorInvalidValue;
  const cudaError_t error =
      with_activation(args.dtype, [&](auto type) { return choose<typename decltype(type)::type>(args, stream); });
  if (error != cudaSuccess) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = plan(args.rows, args.cols).blocks,
                                .width = args.cols,
                                .n_outs = args.dx_sum != nullptr ? 3 : 2,
                                .outs = {args.dgamma, args.dbeta, args.dx_sum}},
                stream);
}

}  // namespace esm::kernels
