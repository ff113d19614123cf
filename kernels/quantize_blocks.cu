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

// Nothing is read back, which would take longer than the atomic unit does.
__device__ void raise_unread(float* amax, uint32_t bits) { atomicMax(reinterpret_cast<unsigned*>(amax), bits); }

// Largest values of rows and columns: [rows] and [cols] of the workspace, 0 before.
template <class T>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 2 ? 3 : 2) outer_amax_kernel(QuantizeBlocksArgs a) {
  __shared__ uint32_t slots[kTileThreads / 32][kTile];
  float *rows = static_cast<float*>(a.workspace), *columns = rows + a.rows;
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  Raw<T> raw;
  load_tile(at, static_cast<const T*>(a.from), counted_rows(a.rows, a.row_count), raw);
  if (a.to_rows != nullptr)
#pragma unroll
    for (int p = 0; p < kTilePasses; ++p)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t bits = row_amax<T>(raw[p][r]);
        if (at.vector == 0 && at.inside(p)) raise_unread(rows + at.row(p, r), bits);
      }
  if (a.to_transposed == nullptr) return;
  const uint32_t bits = column_amax<T>(raw, slots);
  if (threadIdx.x < kTile && at.column0 + threadIdx.x < a.cols) raise_unread(columns + at.column0 + threadIdx.x, bits);
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
      if (error == cudaSuccess) error = go(outer_amax_kernel<T>);
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
