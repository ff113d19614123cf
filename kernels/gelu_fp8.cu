#include "kernels/gelu_fp8.h"

#include "kernels/fp8_tile.cuh"
#include "kernels/gelu_math.cuh"
#include "kernels/partials.h"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

template <GeluForm kForm>
__global__ void __launch_bounds__(kThreads) gelu_fp8_kernel(GeluFp8Args a) {
  const int64_t vectors = a.rows * a.cols / 8, counted = counted_rows(a.rows, a.row_count) * a.cols / 8;
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  Vec8<Bf16> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    raw[u] = first + u * kThreads < counted ? load8(static_cast<const Bf16*>(a.x) + 8 * (first + u * kThreads))
                                            : zero8<Bf16>();
  const float scale = scale_of(a.y);
  Amax<Bf16> amax;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= vectors) break;
    float e[8];
    unpack(raw[u], e);
#pragma unroll
    for (int k = 0; k < 8; ++k) e[k] = Gelu<Bf16, kForm>::at(e[k]).value;
    round_bf16(e, amax);
    if (a.y.rows != nullptr) store8_bytes(a.y.rows + 8 * (first + u * kThreads), fp8_bytes<DType::kF8E4M3>(e, scale));
  }
  raise_by_block<0>(a.y.amax, amax.bits());
}

template <GeluForm kForm, DType kGradient>
__global__ void __launch_bounds__(kTileThreads, 3) gelu_fp8_backward_kernel(GeluFp8BackwardArgs a) {
  __shared__ ByteTile dx_tile, y_tile;
  __shared__ float slots[kTileThreads / 32][kTile];
  const TilePlace at(blockIdx.y, blockIdx.x, a.rows, a.cols);
  const int64_t counted = counted_rows(a.rows, a.row_count);
  const Bf16 *x = static_cast<const Bf16*>(a.x), *dy = static_cast<const Bf16*>(a.dy);
  const float dx_scale = scale_of(a.dx), y_scale = scale_of(a.y);
  Amax<Bf16> dx_amax, y_amax;
  float sums[8] = {};
#pragma unroll 1  // both passes in flight at once would not fit the registers
  for (int p = 0; p < kTilePasses; ++p) {
    Vec8<Bf16> rx[4], rd[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const bool valid = at.inside(p) && at.row(p, r) < counted;
      rx[r] = valid ? load8(x + at.row(p, r) * a.cols + at.column()) : zero8<Bf16>();
      rd[r] = valid ? load8(dy + at.row(p, r) * a.cols + at.column()) : zero8<Bf16>();
    }
    uint2 dx_bytes[4], y_bytes[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float ex[8], ed[8];
      unpack(rx[r], ex);
      unpack(rd[r], ed);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const GeluPoint g = Gelu<Bf16, kForm>::at(ex[k]);
        ex[k] = g.value;
        ed[k] *= g.slope;
        sums[k] += ed[k];
      }
      round_bf16(ex, y_amax);
      round_bf16(ed, dx_amax);
      dx_bytes[r] = fp8_bytes<kGradient>(ed, dx_scale);
      y_bytes[r] = fp8_bytes<DType::kF8E4M3>(ex, y_scale);
    }
    if (a.dx.rows != nullptr && at.inside(p)) write_rows(at, p, dx_bytes, a.dx.rows);
    if (a.dx.transposed != nullptr) dx_tile.put(at, p, dx_bytes);
    if (a.y.transposed != nullptr) y_tile.put(at, p, y_bytes);
  }
  __syncthreads();
  if (a.dx.transposed != nullptr) dx_tile.write(at, a.dx.transposed);
  if (a.y.transposed != nullptr) y_tile.write(at, a.y.transposed);
  if (a.dx_sum != nullptr) {
    const float sum = over_tile_rows(sums, slots, [](float s, float t) { return s + t; });
    if (threadIdx.x < kTile && at.column0 + threadIdx.x < a.cols)
      static_cast<float*>(a.workspace)[blockIdx.y * a.cols + at.column0 + threadIdx.x] = sum;
  }
  raise_by_block<0>(a.dx.amax, dx_amax.bits());
  raise_by_block<1>(a.y.amax, y_amax.bits());
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
    return start(kernel, dim3(static_cast<unsigned>(ceil_div(n / 8, kThreads * kUnroll))), dim3(kThreads), 0, stream,
                 args);
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
