#include <algorithm>

#include "kernels/fp8_scale.h"
#include "kernels/fp8_tile.cuh"
#include "kernels/quantize.h"

namespace esm::kernels {
namespace {

template <DType kTo>
__device__ float block_scale(uint32_t amax) {
  return power_of_two(scale_exponent(__uint_as_float(amax), kTo == DType::kF8E4M3 ? kMaxE4M3 : kMaxE5M2, 0));
}

template <class T>
using Raw = Vec8<T>[kTilePasses][4];

__device__ uint32_t larger(uint32_t a, uint32_t b) { return max(a, b); }

// Of the tile's 128 columns, in every lane of the row.
template <class T>
__device__ uint32_t row_amax(const Vec8<T>& raw) {
  Amax<T> amax;
  amax.see(raw);
  uint32_t bits = amax.bits();
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, offset));
  return bits;
}

// Of the tile's 128 rows: of column t in thread t, if below 128.
template <class T>
__device__ uint32_t column_amax(const Raw<T>& raw, uint32_t (&slots)[kTileThreads / 32][kTile]) {
  uint32_t of_thread[8] = {};
#pragma unroll
  for (int p = 0; p < kTilePasses; ++p)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float e[8];
      unpack(raw[p][r], e);
#pragma unroll
      for (int k = 0; k < 8; ++k) of_thread[k] = max(of_thread[k], magnitude(e[k]));
    }
  return over_tile_rows(of_thread, slots, larger);
}

// Every row by its own scale and, the other way round, every column by its own; both orders are optional.
template <class T, DType kTo, class RowScale, class ColumnScale>
__device__ void write_tile(const TilePlace& at, const Raw<T>& raw, const QuantizeBlocksArgs& a, ByteTile& tile,
                           const RowScale& row_scale, const ColumnScale& column_scale) {
  if (a.to_rows != nullptr)
#pragma unroll
    for (int p = 0; p < kTilePasses; ++p) {
      uint2 bytes[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float e[8];
        unpack(raw[p][r], e);
        bytes[r] = fp8_bytes<kTo>(e, row_scale(p, r));
      }
      if (at.inside(p)) write_rows(at, p, bytes, a.to_rows);
    }
  if (a.to_transposed == nullptr) return;
  float scales[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) scales[k] = column_scale(k);
#pragma unroll
  for (int p = 0; p < kTilePasses; ++p) {
    uint2 bytes[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float e[8];
      unpack(raw[p][r], e);
      bytes[r] = fp8_bytes<kTo>(e, scales);
    }
    tile.put(at, p, bytes);
  }
  __syncthreads();
  tile.write(at, a.to_transposed);
}

template <class T, DType kTo>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 2 ? 3 : 2) quantize_1x128_kernel(QuantizeBlocksArgs a) {
  __shared__ ByteTile tile;
  __shared__ uint32_t slots[kTileThreads / 32][kTile];
  __shared__ float column_scales[kTile];
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  Raw<T> raw;
  load_tile(at, static_cast<const T*>(a.from), counted_rows(a.rows, a.row_count), raw);
  if (a.to_transposed != nullptr) {
    const float scale = block_scale<kTo>(column_amax<T>(raw, slots));
    const int64_t column = at.column0 + threadIdx.x;
    if (threadIdx.x < kTile) {
      column_scales[threadIdx.x] = scale;
      if (column < a.cols) a.column_inverse[blockIdx.y * a.cols + column] = inverse_power(scale);
    }
    __syncthreads();
  }
  write_tile<T, kTo>(
      at, raw, a, tile,
      [&](int p, int r) {
        const float scale = block_scale<kTo>(row_amax<T>(raw[p][r]));
        if (at.vector == 0 && at.inside(p)) a.row_inverse[blockIdx.x * a.rows + at.row(p, r)] = inverse_power(scale);
        return scale;
      },
      [&](int k) { return column_scales[8 * at.vector + k]; });
}

template <class T, DType kTo>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 2 ? 3 : 2) quantize_128x128_kernel(QuantizeBlocksArgs a) {
  __shared__ ByteTile tile;
  __shared__ float shared_scale;
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  Raw<T> raw;
  load_tile(at, static_cast<const T*>(a.from), counted_rows(a.rows, a.row_count), raw);
  Amax<T> amax;
#pragma unroll
  for (int p = 0; p < kTilePasses; ++p)
#pragma unroll
    for (int r = 0; r < 4; ++r) amax.see(raw[p][r]);
  const uint32_t bits = block_max<0>(amax.bits());
  if (threadIdx.x == 0) {
    shared_scale = block_scale<kTo>(bits);
    const float inverse = inverse_power(shared_scale);
    if (a.to_rows != nullptr) a.row_inverse[blockIdx.y * a.row_stride + blockIdx.x] = inverse;
    if (a.to_transposed != nullptr) a.column_inverse[blockIdx.x * a.column_stride + blockIdx.y] = inverse;
  }
  __syncthreads();
  const float scale = shared_scale;
  write_tile<T, kTo>(
      at, raw, a, tile, [=](int, int) { return scale; }, [=](int) { return scale; });
}

// Largest magnitudes of a thread's eight columns.
template <class T>
struct ColumnAmax;
template <>
struct ColumnAmax<float> {
  uint32_t bits[8] = {};
  /// The largest of `v`.
  __device__ uint32_t see(const Vec8<float>& v) {
    float e[8];
    unpack(v, e);
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      bits[k] = max(bits[k], magnitude(e[k]));
      largest = max(largest, magnitude(e[k]));
    }
    return largest;
  }
  __device__ uint32_t of(int k) const { return bits[k]; }
};
template <>
struct ColumnAmax<Bf16> {
  uint32_t pairs[4] = {};
  __device__ uint32_t see(const Vec8<Bf16>& v) {
    const uint32_t words[4] = {v.a.x & 0x7fff7fffu, v.a.y & 0x7fff7fffu, v.a.z & 0x7fff7fffu, v.a.w & 0x7fff7fffu};
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = __vmaxu2(pairs[k], words[k]);
    const uint32_t all = __vmaxu2(__vmaxu2(words[0], words[1]), __vmaxu2(words[2], words[3]));
    return max(all << 16, all & 0xffff0000u);
  }
  __device__ uint32_t of(int k) const { return k % 2 == 0 ? pairs[k / 2] << 16 : pairs[k / 2] & 0xffff0000u; }
};

constexpr int kAmaxThreads = 256, kAmaxBlocks = 3;  // of a multiprocessor
constexpr int kAmaxColumns = 256;                   // of a warp

// Rows of a warp: as many as make one wave of blocks.
int amax_rows(int64_t rows, int64_t cols) {
  const int64_t warps = kMultiprocessors * kAmaxBlocks * kAmaxThreads / 32;
  const int64_t each = ceil_div(rows * ceil_div(cols, kAmaxColumns), warps);
  return static_cast<int>(32 * std::clamp<int64_t>(ceil_div(each, 32), 1, 16));
}

// Largest values of rows and columns: [rows] and [cols] of the workspace, 0 before. A warp walks down its columns; what
// it finds goes to the atomic unit 32 rows at a time, and is not read back, which would take longer.
template <class T>
__global__ void __launch_bounds__(kAmaxThreads, kAmaxBlocks) outer_amax_kernel(QuantizeBlocksArgs a, int rows_each) {
  constexpr int kInFlight = sizeof(T) == 2 ? 8 : 4;
  unsigned *rows = static_cast<unsigned*>(a.workspace), *columns = rows + a.rows;
  const int64_t across = (a.cols + kAmaxColumns - 1) / kAmaxColumns;
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kAmaxThreads / 32) + threadIdx.x / 32, chunk = warp / across;
  const int lane = threadIdx.x % 32;
  const int64_t row0 = chunk * rows_each, column = (warp - chunk * across) * kAmaxColumns + 8 * lane;
  const int counted = static_cast<int>(
      max(min(counted_rows(a.rows, a.row_count) - row0, static_cast<int64_t>(rows_each)), static_cast<int64_t>(0)));
  const bool inside = column < a.cols;
  const T* from = static_cast<const T*>(a.from) + row0 * a.cols + column;
  ColumnAmax<T> amax;
#pragma unroll 1
  for (int row32 = 0; row32 < counted; row32 += 32) {
    uint32_t of_lane = 0;  // of the row of this number
#pragma unroll 1
    for (int first = 0; first < 32; first += kInFlight) {
      Vec8<T> raw[kInFlight];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r, from += a.cols)
        raw[r] = inside && row32 + first + r < counted ? load8(from) : zero8<T>();
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        const uint32_t bits = __reduce_max_sync(0xffffffffu, amax.see(raw[r]));
        if (lane == first + r) of_lane = bits;
      }
    }
    if (a.to_rows != nullptr && row32 + lane < counted) atomicMax(rows + row0 + row32 + lane, of_lane);
  }
  if (a.to_transposed == nullptr || !inside || counted == 0) return;
#pragma unroll
  for (int k = 0; k < 8; ++k) atomicMax(columns + column + k, amax.of(k));
}

template <class T, DType kTo>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 2 ? 3 : 2) quantize_outer_kernel(QuantizeBlocksArgs a) {
  __shared__ ByteTile tile;
  const uint32_t *rows = static_cast<const uint32_t*>(a.workspace), *columns = rows + a.rows;
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  Raw<T> raw;
  load_tile(at, static_cast<const T*>(a.from), counted_rows(a.rows, a.row_count), raw);
  write_tile<T, kTo>(
      at, raw, a, tile,
      [&](int p, int r) {
        if (!at.inside(p)) return 1.0f;
        const float scale = block_scale<kTo>(__ldg(rows + at.row(p, r)));
        if (blockIdx.x == 0 && at.vector == 0) a.row_inverse[at.row(p, r)] = inverse_power(scale);
        return scale;
      },
      [&](int k) {
        if (at.column() >= a.cols) return 1.0f;
        const float scale = block_scale<kTo>(__ldg(columns + at.column() + k));
        if (blockIdx.y == 0 && at.group == 0) a.column_inverse[at.column() + k] = inverse_power(scale);
        return scale;
      });
}

template <class T, DType kTo>
cudaError_t run(const QuantizeBlocksArgs& a, cudaStream_t stream) {
  const auto go = [&](void (*kernel)(QuantizeBlocksArgs)) {
    return start(kernel, tile_grid(a.rows, a.cols), dim3(kTileThreads), 0, stream, a);
  };
  switch (a.scaling) {
    case BlockScaling::k1x128: return go(quantize_1x128_kernel<T, kTo>);
    case BlockScaling::k128x128: return go(quantize_128x128_kernel<T, kTo>);
    case BlockScaling::kOuter: {
      cudaError_t error = cudaMemsetAsync(a.workspace, 0, quantize_outer_workspace(a.rows, a.cols), stream);
      if (error != cudaSuccess) return error;
      const int rows_each = amax_rows(a.rows, a.cols);
      const int64_t warps = ceil_div(a.rows, rows_each) * ceil_div(a.cols, kAmaxColumns);
      error = start(outer_amax_kernel<T>, dim3(static_cast<unsigned>(ceil_div(warps, kAmaxThreads / 32))),
                    dim3(kAmaxThreads), 0, stream, a, rows_each);
      return error != cudaSuccess ? error : go(quantize_outer_kernel<T, kTo>);
    }
  }
  return cudaErrorInvalidValue;
}

bool complete(const QuantizeBlocksArgs& a) {
  if (a.to_rows == nullptr && a.to_transposed == nullptr) return false;
  if ((a.to_rows != nullptr) != (a.row_inverse != nullptr)) return false;
  if ((a.to_transposed != nullptr) != (a.column_inverse != nullptr)) return false;
  switch (a.scaling) {
    case BlockScaling::k1x128: return true;
    case BlockScaling::k128x128:
      return (a.to_rows == nullptr || a.row_stride >= ceil_div(a.cols, kTile)) &&
             (a.to_transposed == nullptr || a.column_stride >= ceil_div(a.rows, kTile));
    case BlockScaling::kOuter: return a.workspace != nullptr;
  }
  return false;
}

}  // namespace

size_t quantize_outer_workspace(int64_t rows, int64_t cols) { return static_cast<size_t>(rows + cols) * sizeof(float); }

cudaError_t launch(const QuantizeBlocksArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.rows % kFp8Multiple != 0 || args.cols % kFp8Multiple != 0 || !complete(args) || !aligned16(args.from) ||
      !aligned16(args.to_rows) || !aligned16(args.to_transposed))
    return cudaErrorInvalidValue;
  return with_activation(args.dtype, [&](auto type) {
    return with_fp8(args.to_dtype,
                    [&](auto to) { return run<typename decltype(type)::type, decltype(to)::value>(args, stream); });
  });
}

}  // namespace esm::kernels
