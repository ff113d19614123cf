#include "kernels/quantize.h"

#include "kernels/fp8_tile.cuh"
#include "kernels/partials.h"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

bool whole(int64_t rows, int64_t cols) { return rows % kFp8Multiple == 0 && cols % kFp8Multiple == 0; }

template <class From, DType kTo>
__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeArgs a) {
  const int64_t vectors = a.rows * a.cols / 8, counted = counted_rows(a.rows, a.row_count) * a.cols / 8;
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  const From* from = static_cast<const From*>(a.from);
  Vec8<From> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    raw[u] = first + u * kThreads < counted ? load8(from + 8 * (first + u * kThreads)) : zero8<From>();
  const float scale = *a.to.scale;
  Amax<From> amax;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= vectors) break;
    float e[8];
    unpack(raw[u], e);
    amax.see(raw[u]);
    store8_bytes(a.to.rows + 8 * (first + u * kThreads), fp8_bytes<kTo>(e, scale));
  }
  raise_by_block<0>(a.to.amax, amax.bits());
}

template <class T>
__global__ void __launch_bounds__(kThreads) amax_kernel(AmaxArgs a) {
  const int64_t vectors = counted_rows(a.rows, a.row_count) * a.cols / 8;
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  Vec8<T> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    raw[u] =
        first + u * kThreads < vectors ? load8(static_cast<const T*>(a.x) + 8 * (first + u * kThreads)) : zero8<T>();
  Amax<T> amax;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) amax.see(raw[u]);
  raise_by_block<0>(a.amax, amax.bits());
}

// Tiles of all matrices, one after the other.
struct Tiles {
  int first[QuantizeTransposeArgs::kMaxMatrices + 1];  // of each matrix
};

template <class From, DType kTo>
__global__ void __launch_bounds__(kTileThreads, sizeof(From) == 2 ? 3 : 2)
    quantize_transpose_kernel(const __grid_constant__ QuantizeTransposeArgs a, const __grid_constant__ Tiles tiles) {
  __shared__ ByteTile tile;
  __shared__ float slots[kTileThreads / 32][kTile];
  int which = 0;
  while (static_cast<int>(blockIdx.x) >= tiles.first[which + 1]) ++which;
  const QuantizeTransposeArgs::Matrix& m = a.matrix[which];
  const int index = static_cast<int>(blockIdx.x) - tiles.first[which];
  const int across = static_cast<int>((m.cols + kTile - 1) / kTile);
  const int tile_row = index / across;
  const TilePlace at(tile_row, index - tile_row * across, m.rows, m.cols);
  Vec8<From> raw[kTilePasses][4];
  load_tile(at, static_cast<const From*>(m.from), counted_rows(m.rows, a.row_count), raw);
  const float scale = *m.to.scale;
  Amax<From> amax;
  float sums[8] = {};
#pragma unroll
  for (int p = 0; p < kTilePasses; ++p) {
    uint2 bytes[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float e[8];
      unpack(raw[p][r], e);
      amax.see(raw[p][r]);
      bytes[r] = fp8_bytes<kTo>(e, scale);
#pragma unroll
      for (int k = 0; k < 8; ++k) sums[k] += e[k];
    }
    if (m.to.rows != nullptr && at.inside(p)) write_rows(at, p, bytes, m.to.rows);
    if (m.to.transposed != nullptr) tile.put(at, p, bytes);
  }
  if (m.to.transposed != nullptr) {
    __syncthreads();
    tile.write(at, m.to.transposed);
  }
  if (m.sum != nullptr) {
    const float sum = over_tile_rows(sums, slots, [](float x, float y) { return x + y; });
    if (threadIdx.x < kTile && at.column0 + threadIdx.x < m.cols)
      static_cast<float*>(m.workspace)[tile_row * m.cols + at.column0 + threadIdx.x] = sum;
  }
  raise_by_block<0>(m.to.amax, amax.bits());
}

dim3 flat_grid(int64_t n) { return dim3(static_cast<unsigned>(ceil_div(n / 8, kThreads * kUnroll))); }

}  // namespace

cudaError_t launch(const QuantizeArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (!whole(args.rows, args.cols) || !aligned16(args.from) || args.to.rows == nullptr || !usable(args.to, true) ||
      args.to.transposed != nullptr)
    return cudaErrorInvalidValue;
  return with_activation(args.dtype, [&](auto type) {
    return with_fp8(args.to.dtype, [&](auto to) {
      return start(quantize_kernel<typename decltype(type)::type, decltype(to)::value>,
                   flat_grid(args.rows * args.cols), dim3(kThreads), 0, stream, args);
    });
  });
}

size_t quantize_transpose_workspace(int64_t rows, int64_t cols) { return tile_partials_bytes(rows, cols); }

cudaError_t launch(const QuantizeTransposeArgs& args, cudaStream_t stream) {
  if (args.n_matrices < 1 || args.n_matrices > QuantizeTransposeArgs::kMaxMatrices) return cudaErrorInvalidValue;
  Tiles tiles{};
  for (int i = 0; i < args.n_matrices; ++i) {
    const QuantizeTransposeArgs::Matrix& m = args.matrix[i];
    if (m.rows < 0 || m.cols < 0 || !whole(m.rows, m.cols) || !aligned16(m.from) || !usable(m.to, true) ||
        m.to.dtype != args.matrix[0].to.dtype || (m.sum != nullptr && m.workspace == nullptr))
      return cudaErrorInvalidValue;
    const int64_t end = tiles.first[i] + ceil_div(m.rows, kTile) * ceil_div(m.cols, kTile);
    if (end > INT32_MAX) return cudaErrorInvalidValue;
    tiles.first[i + 1] = static_cast<int>(end);
  }
  const int total = tiles.first[args.n_matrices];
  if (total == 0) return cudaSuccess;
  const cudaError_t error = with_activation(args.dtype, [&](auto type) {
    return with_fp8(args.matrix[0].to.dtype, [&](auto to) {
      return start(quantize_transpose_kernel<typename decltype(type)::type, decltype(to)::value>,
                   dim3(static_cast<unsigned>(total)), dim3(kTileThreads), 0, stream, args, tiles);
    });
  });
  if (error != cudaSuccess) return error;
  for (int i = 0; i < args.n_matrices; ++i) {
    const QuantizeTransposeArgs::Matrix& m = args.matrix[i];
    if (m.sum == nullptr || m.rows == 0) continue;
    const cudaError_t added = launch(AddPartialsArgs{.partials = static_cast<const float*>(m.workspace),
                                                     .count = ceil_div(m.rows, kTile),
                                                     .width = m.cols,
                                                     .outs = {m.sum}},
                                     stream);
    if (added != cudaSuccess) return added;
  }
  return cudaSuccess;
}

cudaError_t launch(const AmaxArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 8 != 0 || !aligned16(args.x) || args.amax == nullptr) return cudaErrorInvalidValue;
  return with_activation(args.dtype, [&](auto type) {
    return start(amax_kernel<typename decltype(type)::type>, flat_grid(args.rows * args.cols), dim3(kThreads), 0,
                 stream, args);
  });
}

}  // namespace esm::kernels
