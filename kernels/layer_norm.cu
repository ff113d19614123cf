#include "kernels/layer_norm.h"

#include <algorithm>

#include "kernels/fp8.cuh"
#include "kernels/launch.cuh"
#include "kernels/layer_norm_fp8.h"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 128;  // of a block when a row fits in a warp
constexpr int kBlock = 0;      // kLanes of a row that takes the whole block

// Sum over the lanes of a row, in every lane. `slots`: one value per warp.
template <int kLanes>
__device__ float row_sum(float value, float* slots) {
  if constexpr (kLanes != kBlock) return lanes_sum<kLanes>(value);
  value = lanes_sum<32>(value);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += slots[w];
  return sum;
}

// Where the rows go: as they are,
template <class T>
struct PlainRows {
  T* y;
  __device__ int64_t counted(int64_t rows) const { return rows; }
  __device__ void start() {}
  __device__ void store(int64_t at, bool, float (&e)[8]) const { store8(y + at, e); }
  __device__ void finish() const {}
};

// or in FP8.
struct Fp8Rows {
  Fp8Out y;
  const int32_t* row_count;
  float scale = 0;
  Amax<Bf16> amax = {};
  __device__ int64_t counted(int64_t rows) const { return counted_rows(rows, row_count); }
  __device__ void start() { scale = scale_of(y); }
  __device__ void store(int64_t at, bool counts, float (&e)[8]) {
    round_bf16(e, amax, counts);
    if (y.rows != nullptr) store8_bytes(y.rows + at, fp8_bytes<DType::kF8E4M3>(e, scale));
  }
  __device__ void finish() const { raise_by_block<0>(y.amax, amax.bits()); }
};

// A row stays in the registers of its kLanes lanes, kVectors vectors each (all of them full if kExact); the next row of
// the same lanes is on its way meanwhile. BF16 keeps gamma and beta in registers too.
template <class T, class Out, int kLanes, int kVectors, bool kExact>
__global__ void __launch_bounds__(kLanes == kBlock ? 256 : kThreads, kLanes == kBlock ? 2 : 4)
    layer_norm_kernel(LayerNormArgs a, Out out) {
  constexpr bool kHold = sizeof(T) == 2;
  __shared__ float slots[2][8];
  const int lanes = kLanes == kBlock ? static_cast<int>(blockDim.x) : kLanes;
  const int rows_at_once = kLanes == kBlock ? 1 : kThreads / kLanes;
  const int lane = kLanes == kBlock ? threadIdx.x : threadIdx.x % kLanes;
  const int group = kLanes == kBlock ? 0 : threadIdx.x / kLanes;
  const int vectors = static_cast<int>(a.cols / 8);
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const T *gamma = static_cast<const T*>(a.gamma) + 8 * lane, *beta = static_cast<const T*>(a.beta) + 8 * lane;
  const auto full = [&](int i) { return kExact || lane + i * lanes < vectors; };

  const int64_t step = static_cast<int64_t>(gridDim.x) * rows_at_once;
  int64_t first = blockIdx.x * static_cast<int64_t>(rows_at_once);  // of the rows in work; the same for all threads
  const T* x = static_cast<const T*>(a.x) + (first + group) * a.cols + 8 * lane;
  int64_t at = (first + group) * a.cols + 8 * lane;
  const int64_t counted = out.counted(a.rows);
  out.start();
  Vec8<T> next[kVectors], held_gamma[kHold ? kVectors : 1], held_beta[kHold ? kVectors : 1];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    next[i] = first + group < counted && full(i) ? load8(x + 8 * i * lanes) : zero8<T>();
  if constexpr (kHold)
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      held_gamma[i] = full(i) ? load8_shared(gamma + 8 * i * lanes) : zero8<T>();
      held_beta[i] = full(i) ? load8_shared(beta + 8 * i * lanes) : zero8<T>();
    }

  // All lanes of a block take every round: they trade values.
  for (; first < a.rows; first += step, x += step * a.cols, at += step * a.cols) {
    const int64_t row = first + group;
    Vec8<T> raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      raw[i] = next[i];
      if (row + step < counted && full(i)) next[i] = load8(x + step * a.cols + 8 * i * lanes);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float e[8];
      unpack(raw[i], e);
      sum += ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]));
    }
    // Products rounded on their own and explicit FMAs: every kind of output gets the same bits.
    const float mean = __fmul_rn(row_sum<kLanes>(sum, slots[0]), inverse);
    float squares[2] = {};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float e[8];
      unpack(raw[i], e);
      float of_vector = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) of_vector = fmaf(e[k] - mean, e[k] - mean, of_vector);
      squares[i % 2] += full(i) ? of_vector : 0.0f;
    }
    const float rstd = rsqrtf(fmaf(row_sum<kLanes>(squares[0] + squares[1], slots[1]), inverse, a.eps));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (row >= a.rows || !full(i)) continue;
      float e[8], g[8], b[8];
      unpack(raw[i], e);
      if constexpr (kHold) {
        hide(held_gamma[i].a);  // as FP32 all of them would not fit
        hide(held_beta[i].a);
        unpack(held_gamma[i], g);
        unpack(held_beta[i], b);
      } else {
        unpack(load8_shared(gamma + 8 * i * lanes), g);
        unpack(load8_shared(beta + 8 * i * lanes), b);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) e[k] = fmaf(standardized<T>(e[k], mean, rstd), g[k], b[k]);
      out.store(at + 8 * i * lanes, row < counted, e);
    }
    if (lane == 0 && row < a.rows && a.mean != nullptr) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
  out.finish();
}

template <class T, int kLanes, int kVectors, class Out>
cudaError_t run(const LayerNormArgs& a, const Out& out, cudaStream_t stream) {
  const int64_t vectors = a.cols / 8;
  const int warps = kLanes == kBlock ? static_cast<int>(ceil_div(ceil_div(vectors, kVectors), 32)) : kThreads / 32;
  const int lanes = kLanes == kBlock ? 32 * warps : kLanes;
  // Sixteen warps a multiprocessor, each with a row in work and one on its way.
  const int64_t passes = kLanes == kBlock ? a.rows : ceil_div(a.rows, kThreads / lanes);
  const int64_t blocks = std::min<int64_t>(passes, kMultiprocessors * std::max(1, 16 / warps));
  const auto go = [&](void (*kernel)(LayerNormArgs, Out)) {
    return start(kernel, dim3(static_cast<unsigned>(blocks)), dim3(32 * warps), 0, stream, a, out);
  };
  return vectors == static_cast<int64_t>(lanes) * kVectors ? go(layer_norm_kernel<T, Out, kLanes, kVectors, true>)
                                                           : go(layer_norm_kernel<T, Out, kLanes, kVectors, false>);
}

// As few lanes as keep a row at five vectors a lane: widths of 5 * 2^k vectors (all ESM-2 models) leave none idle.
template <class T, class Out>
cudaError_t choose(const LayerNormArgs& a, const Out& out, cudaStream_t stream) {
  const int64_t vectors = a.cols / 8;
  if (vectors <= 8) return run<T, 8, 1>(a, out, stream);
  if (vectors <= 16) return run<T, 8, 2>(a, out, stream);
  if (vectors <= 24) return run<T, 8, 3>(a, out, stream);
  if (vectors <= 32) return run<T, 8, 4>(a, out, stream);
  if (vectors <= 40) return run<T, 8, 5>(a, out, stream);
  if (vectors <= 48) return run<T, 16, 3>(a, out, stream);
  if (vectors <= 64) return run<T, 16, 4>(a, out, stream);
  if (vectors <= 80) return run<T, 16, 5>(a, out, stream);
  if (vectors <= 96) return run<T, 32, 3>(a, out, stream);
  if (vectors <= 128) return run<T, 32, 4>(a, out, stream);
  if (vectors <= 160) return run<T, 32, 5>(a, out, stream);
  if (vectors % 160 == 0) return run<T, kBlock, 5>(a, out, stream);
  return run<T, kBlock, 4>(a, out, stream);
}

bool fits(const LayerNormArgs& a) {
  return a.cols >= 8 && a.cols % 8 == 0 && a.cols <= kLayerNormMaxCols && aligned16(a.x) && aligned16(a.y) &&
         aligned16(a.gamma) && aligned16(a.beta) && (a.mean == nullptr) == (a.rstd == nullptr);
}

}  // namespace

cudaError_t launch(const LayerNormArgs& args, cudaStream_t stream) {
  if (args.rows <= 0) return cudaSuccess;
  if (!fits(args)) return cudaErrorInvalidValue;
  return with_activation(args.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return choose<T>(args, PlainRows<T>{static_cast<T*>(args.y)}, stream);
  });
}

cudaError_t launch(const LayerNormFp8Args& args, cudaStream_t stream) {
  const LayerNormArgs plain{.rows = args.rows,
                            .cols = args.cols,
                            .x = args.x,
                            .gamma = args.gamma,
                            .beta = args.beta,
                            .eps = args.eps,
                            .mean = args.mean,
                            .rstd = args.rstd};
  if (args.rows <= 0) return cudaSuccess;
  if (!fits(plain) || args.rows % kFp8Multiple != 0 || args.cols % kFp8Multiple != 0 || !wanted(args.y) ||
      !usable(args.y, false) || args.y.transposed != nullptr || args.y.dtype != DType::kF8E4M3)
    return cudaErrorInvalidValue;
  return choose<Bf16>(plain, Fp8Rows{.y = args.y, .row_count = args.row_count}, stream);
}

}  // namespace esm::kernels
