#include "kernels/gelu.h"

#include "kernels/column_sums.cuh"
#include "kernels/gelu_math.cuh"
#include "kernels/launch.cuh"
#include "kernels/partials.h"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // vectors of a thread in flight

template <class T, GeluForm kForm>
__global__ void __launch_bounds__(kThreads) gelu_kernel(const T* x, T* y, int64_t vectors) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  Vec8<T> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (first + u * kThreads < vectors) raw[u] = load8(x + 8 * (first + u * kThreads));
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= vectors) break;
    float e[8];
    unpack(raw[u], e);
#pragma unroll
    for (int k = 0; k < 8; ++k) e[k] = Gelu<T, kForm>::at(e[k]).value;
    store8(y + 8 * (first + u * kThreads), e);
  }
}

constexpr int64_t kBackwardThreads = 1024;  // that a multiprocessor holds at 64 registers a thread

template <class T, GeluForm kForm, bool kOutput, bool kSum>
__global__ void __launch_bounds__(kThreads, 4) gelu_backward_kernel(GeluBackwardArgs a, ColumnPlan plan) {
  constexpr int kRows = sizeof(T) == 2 ? 2 : 1;  // in flight
  const int lane = threadIdx.x / plan.width;
  const int64_t vector = blockIdx.x * static_cast<int64_t>(plan.width) + threadIdx.x % plan.width;
  float sums[8] = {};
  if (lane < plan.lanes && 8 * vector < a.cols) {
    const int64_t end = min(a.rows, (blockIdx.y + 1) * plan.chunk_rows);
    const T *x = static_cast<const T*>(a.x) + 8 * vector, *dy = static_cast<const T*>(a.dy) + 8 * vector;
    T *dx = static_cast<T*>(a.dx) + 8 * vector, *y = static_cast<T*>(a.y) + 8 * vector;
    for (int64_t row = blockIdx.y * plan.chunk_rows + lane; row < end; row += kRows * plan.lanes) {
      Vec8<T> rx[kRows], rd[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r * plan.lanes >= end) break;
        rx[r] = load8(x + (row + r * plan.lanes) * a.cols);
        rd[r] = load8(dy + (row + r * plan.lanes) * a.cols);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r * plan.lanes >= end) break;
        float ex[8], ed[8];
        unpack(rx[r], ex);
        unpack(rd[r], ed);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const GeluPoint g = Gelu<T, kForm>::at(ex[k]);
          ex[k] = g.value;
          ed[k] = fmaf(ed[k], g.slope, 0.0f);  // +0 of 0, as the twin
          if constexpr (kSum) sums[k] += ed[k];
        }
        store8(dx + (row + r * plan.lanes) * a.cols, ed);
        if constexpr (kOutput) store8(y + (row + r * plan.lanes) * a.cols, ex);
      }
    }
  }
  if constexpr (kSum) write_column_partials(plan, a.cols, sums, static_cast<float*>(a.workspace));
}

template <class T, GeluForm kForm>
cudaError_t run(const GeluBackwardArgs& a, cudaStream_t stream) {
  const ColumnPlan plan = column_plan(a.rows, a.cols, kBackwardThreads);
  const auto go = [&](void (*kernel)(GeluBackwardArgs, ColumnPlan)) {
    return start(kernel, dim3(plan.column_blocks, plan.row_chunks), dim3(plan.threads), 0, stream, a, plan);
  };
  if (a.dx_sum != nullptr)
    return a.y != nullptr ? go(gelu_backward_kernel<T, kForm, true, true>)
                          : go(gelu_backward_kernel<T, kForm, false, true>);
  return a.y != nullptr ? go(gelu_backward_kernel<T, kForm, true, false>)
                        : go(gelu_backward_kernel<T, kForm, false, false>);
}

}  // namespace

cudaError_t launch(const GeluArgs& args, cudaStream_t stream) {
  const int64_t n = args.rows * args.cols;
  if (n <= 0) return cudaSuccess;
  if (n % 8 != 0 || !aligned16(args.x) || !aligned16(args.y)) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(ceil_div(n / 8, kThreads * kUnroll)));
  return with_activation(args.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto go = [&](void (*kernel)(const T*, T*, int64_t)) {
      return start(kernel, grid, dim3(kThreads), 0, stream, static_cast<const T*>(args.x), static_cast<T*>(args.y),
                   n / 8);
    };
    return args.form == GeluForm::kErf ? go(gelu_kernel<T, GeluForm::kErf>) : go(gelu_kernel<T, GeluForm::kTanh>);
  });
}

size_t gelu_backward_workspace(int64_t rows, int64_t cols) {
  return rows <= 0 || cols < 8 ? 0 : column_partials_bytes(column_plan(rows, cols, kBackwardThreads), cols);
}

cudaError_t launch(const GeluBackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 8 != 0 || !aligned16(args.x) || !aligned16(args.dy) || !aligned16(args.dx) || !aligned16(args.y) ||
      !aligned16(args.workspace) || args.y == args.dx)
    return cudaErrorInvalidValue;
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return args.form == GeluForm::kErf ? run<T, GeluForm::kErf>(args, stream) : run<T, GeluForm::kTanh>(args, stream);
  });
  if (error != cudaSuccess || args.dx_sum == nullptr) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = column_plan(args.rows, args.cols, kBackwardThreads).row_chunks,
                                .width = args.cols,
                                .outs = {args.dx_sum}},
                stream);
}

}  // namespace esm::kernels
