#include "kernels/gelu_fp8.h"

#include "kernels/fp8_tile.cuh"
#include "kernels/gelu_math.cuh"
#include "kernels/partials.h"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4, kRounds = 4;
constexpr int kChunk = kThreads * kUnroll * kRounds;  // vectors of a block

// A vector in work makes room for the one of the next round, which is on its way meanwhile.
template <GeluForm kForm>
__global__ void __launch_bounds__(kThreads, 6) gelu_fp8_kernel(GeluFp8Args a) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(kChunk) + threadIdx.x;
  const auto left_of = [&](int64_t rows) {  // of this thread's vectors on, at most a chunk
    return static_cast<int>(max(min(rows * a.cols / 8 - first, static_cast<int64_t>(kChunk)), int64_t{0}));
  };
  int left = left_of(a.rows), counted = left_of(counted_rows(a.rows, a.row_count));
  const Bf16* x = static_cast<const Bf16*>(a.x) + 8 * first;
  uint8_t* y = a.y.rows + 8 * first;
  Vec8<Bf16> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) raw[u] = load8_here(x + 8 * u * kThreads, u * kThreads < counted);
  const float scale = scale_of(a.y);
  Amax<Bf16> amax;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    x += 8 * kUnroll * kThreads;
    counted -= kUnroll * kThreads;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float e[8];
      unpack(raw[u], e);
      raw[u] = load8_here(x + 8 * u * kThreads, round + 1 < kRounds && u * kThreads < counted);
#pragma unroll
      for (int k = 0; k < 8; ++k) e[k] = Gelu<Bf16, kForm>::at(e[k]).value;
      round_bf16(e, amax);
      if (a.y.rows != nullptr && u * kThreads < left)
        store8_bytes(y + 8 * u * kThreads, fp8_bytes<DType::kF8E4M3>(e, scale));
    }
    y += 8 * kUnroll * kThreads;
    left -= kUnroll * kThreads;
  }
  raise_by_block<0>(a.y.amax, amax.bits());
}

template <GeluForm kForm, DType kGradient>
__global__ void __launch_bounds__(kTileThreads, 4) gelu_fp8_backward_kernel(GeluFp8BackwardArgs a) {
  __shared__ ByteTile dx_tile, y_tile;
  __shared__ TileSlots<float> slots;
  __shared__ uint32_t largest[2][kTileThreads / 32];
  const auto add = [](float s, float t) { return s + t; };
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The thread's rows of the tile, from its first one on: 0 to 3, and 64 to 67.
  const auto of_thread = [&](int64_t rows) {
    return static_cast<int>(max(min(rows - at.row(0, 0), static_cast<int64_t>(kTile)), int64_t{0}));
  };
  const bool has_columns = at.column() < a.cols;
  const int counted = has_columns ? of_thread(counted_rows(a.rows, a.row_count)) : 0;
  const int written = has_columns && a.dx.rows != nullptr ? of_thread(a.rows) : 0;
  const int64_t first = at.row(0, 0) * a.cols + at.column();
  const Bf16 *x = static_cast<const Bf16*>(a.x) + first, *dy = static_cast<const Bf16*>(a.dy) + first;
  uint8_t* to = a.dx.rows + first;
  int next = 0;  // the row that is read next
  Vec8<Bf16> rx[2], rd[2];
  const auto read = [&](int r) {
    rx[r] = load8_here(x, next < counted);
    rd[r] = load8_here(dy, next < counted);
    x += a.cols;
    dy += a.cols;
    ++next;
  };
  read(0);
  read(1);
  __syncwarp();  // the compiler leaves the reads on this side
  const float dx_scale = scale_of(a.dx), y_scale = scale_of(a.y);
  Amax<Bf16> dx_amax, y_amax;
  float sums[8] = {};
#pragma unroll 1
  for (int pair = 0; pair < 2 * kTilePasses; ++pair) {
    if (pair % 2 != 0) {
      x += 60 * a.cols;
      dy += 60 * a.cols;
      next += 60;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r, to += a.cols) {
      float ex[8], ed[8];
      unpack(rx[r], ex);
      unpack(rd[r], ed);
      read(r);  // a row in work makes room for one of the next two
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const GeluPoint g = Gelu<Bf16, kForm>::at(ex[k]);
        ex[k] = g.value;
        ed[k] = fmaf(ed[k], g.slope, 0.0f);  // +0 of 0, as the twin
        sums[k] += ed[k];
      }
      round_bf16(ex, y_amax);
      round_bf16(ed, dx_amax);
      const uint2 dx_bytes = fp8_bytes<kGradient>(ed, dx_scale), y_bytes = fp8_bytes<DType::kF8E4M3>(ex, y_scale);
      dx_tile.put(at, pair / 2, pair % 2 * 2 + r, dx_bytes);
      y_tile.put(at, pair / 2, pair % 2 * 2 + r, y_bytes);
      if (64 * (pair / 2) < written) store8_bytes(to, dx_bytes);
    }
    if (pair % 2 != 0) to += 60 * a.cols;
  }
  // One barrier for all that the threads trade.
  if (a.dx_sum != nullptr) over_warp_rows(sums, slots, add);
  for (int which = 0; which < 2; ++which) {
    const uint32_t of_warp = __reduce_max_sync(0xffffffffu, which == 0 ? dx_amax.bits() : y_amax.bits());
    if (lane == 0) largest[which][warp] = of_warp;
  }
  __syncthreads();
  if (a.dx.transposed != nullptr) dx_tile.write(at, a.dx.transposed);
  if (a.y.transposed != nullptr) y_tile.write(at, a.y.transposed);
  if (a.dx_sum != nullptr && threadIdx.x < kTile && at.column0 + threadIdx.x < a.cols)
    static_cast<float*>(a.workspace)[blockIdx.y * a.cols + at.column0 + threadIdx.x] = over_warps(slots, add);
  if (float* amax = warp == 0 ? a.dx.amax : a.y.amax; warp < 2 && amax != nullptr) {
    const uint32_t of_block = __reduce_max_sync(0xffffffffu, lane < kTileThreads / 32 ? largest[warp][lane] : 0u);
    if (lane == 0) raise(amax, of_block);
  }
}

template <GeluForm kForm>
cudaError_t run(const GeluFp8BackwardArgs& a, cudaStream_t stream) {
  return with_fp8(a.dx.dtype, [&](auto gradient) {
    return start(gelu_fp8_backward_kernel<kForm, decltype(gradient)::value>, tile_grid(a.rows, a.cols),
                 dim3(kTileThreads), 0, stream, a);
  });
}

bool whole(int64_t rows, int64_t cols) { return rows % kFp8Multiple == 0 && cols % kFp8Multiple == 0; }

}  // namespace

cudaError_t launch(const GeluFp8Args& args, cudaStream_t stream) {
  const int64_t n = args.rows * args.cols;
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (!whole(args.rows, args.cols) || !aligned16(args.x) || !wanted(args.y) || !usable(args.y, false) ||
      args.y.transposed != nullptr || args.y.dtype != DType::kF8E4M3)
    return cudaErrorInvalidValue;
  const auto go = [&](void (*kernel)(GeluFp8Args)) {
    return start(kernel, dim3(static_cast<unsigned>(ceil_div(n / 8, kChunk))), dim3(kThreads), 0, stream, args);
  };
  return args.form == GeluForm::kErf ? go(gelu_fp8_kernel<GeluForm::kErf>) : go(gelu_fp8_kernel<GeluForm::kTanh>);
}

size_t gelu_fp8_backward_workspace(int64_t rows, int64_t cols) { return tile_partials_bytes(rows, cols); }

cudaError_t launch(const GeluFp8BackwardArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (!whole(args.rows, args.cols) || !aligned16(args.x) || !aligned16(args.dy) || !wanted(args.dx) ||
      !usable(args.dx, false) || !usable(args.y, false) || args.y.rows != nullptr || args.y.dtype != DType::kF8E4M3 ||
      (args.dx_sum != nullptr && args.workspace == nullptr))
    return cudaErrorInvalidValue;
  const cudaError_t error =
      args.form == GeluForm::kErf ? run<GeluForm::kErf>(args, stream) : run<GeluForm::kTanh>(args, stream);
  if (error != cudaSuccess || args.dx_sum == nullptr) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = ceil_div(args.rows, kTile),
                                .width = args.cols,
                                .outs = {args.dx_sum}},
                stream);
}

}  // namespace esm::kernels
