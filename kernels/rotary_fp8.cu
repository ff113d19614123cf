#include "kernels/rotary_fp8.h"

#include "kernels/fp8_tile.cuh"
#include "kernels/partials.h"
#include "kernels/rotary_math.cuh"

namespace esm::kernels {
namespace {

constexpr int kTilesEach = 3;  // of a block

/// Heads of a tile, which is as wide as they are together: up to 128 columns.
struct Heads {
  int64_t cols;  // of all
  int head_dim, width;

  __host__ __device__ Heads(int64_t heads, int64_t head_dim_)
      : cols(3 * heads * head_dim_), head_dim(static_cast<int>(head_dim_)), width(kTile / head_dim * head_dim) {}
  __host__ __device__ int64_t tiles() const { return (cols + width - 1) / width; }
};

/// What a thread has of a tile: four rows of eight columns of the first half of a head and of their partners in the
/// second. A warp has eight such pairs of vectors and four groups of rows, chosen so that its stores to a ByteTile meet
/// every bank once: the vectors of one half leave out bit log2(half / 8) of their number, which the groups supply.
struct PairPlace {
  int vector, partner;  // of the tile
  int part;             // of a half, in vectors
  int group;
  bool in_tile;

  __device__ explicit PairPlace(int head_dim) {
    const int vectors = head_dim / 16, pair = threadIdx.x % 8, lanes = threadIdx.x % 32 / 8, warp = threadIdx.x / 32;
    const int head = pair / vectors;
    part = pair - head * vectors;
    vector = head * 2 * vectors + part;
    partner = vector + vectors;
    in_tile = (head + 1) * head_dim <= kTile;
    const int bit = 32 - __clz(vectors), below = (1 << (bit - 1)) - 1;
    group = lanes % 2 | lanes / 2 << bit | (warp & below) << 1 | warp >> (bit - 1) << (bit + 1);
  }
};

/// Sums over the rows of a tile of what each thread has of its columns; of column t (0..127) in thread t.
__device__ float over_pair_rows(const PairPlace& at, const float (&first)[8], const float (&second)[8],
                                float (&slots)[kTileThreads / 32][kTile]) {
  const bool upper = threadIdx.x & 16, later = threadIdx.x & 8;
  float half[8], quarter[4];
#pragma unroll
  for (int k = 0; k < 8; ++k)
    half[k] = (upper ? second[k] : first[k]) + __shfl_xor_sync(0xffffffffu, upper ? first[k] : second[k], 16);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    quarter[k] = (later ? half[k + 4] : half[k]) + __shfl_xor_sync(0xffffffffu, later ? half[k] : half[k + 4], 8);
  if (at.in_tile)
    *reinterpret_cast<float4*>(&slots[threadIdx.x / 32][8 * (upper ? at.partner : at.vector) + (later ? 4 : 0)]) =
        make_float4(quarter[0], quarter[1], quarter[2], quarter[3]);
  __syncthreads();
  const int column = threadIdx.x % kTile;
  float sum = slots[0][column];
#pragma unroll
  for (int w = 1; w < kTileThreads / 32; ++w) sum += slots[w][column];
  return sum;
}

__device__ void load4(const float* p, float (&v)[4]) {
  const float4 f = __ldg(reinterpret_cast<const float4*>(p));
  v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
}

// A block takes the same columns of q, k and v, if they fill tiles, so that the rows of the tables that it read first
// are still near when it reads them again.
template <DType kTo>
__global__ void __launch_bounds__(kTileThreads, 2) rotary_fp8_backward_kernel(RotaryFp8BackwardArgs a) {
  __shared__ ByteTile tile;
  alignas(16) __shared__ float slots[kTileThreads / 32][kTile];
  const Heads heads(a.heads, a.head_dim);
  const PairPlace mine(heads.head_dim);
  const int half = heads.head_dim / 2;
  const int64_t row0 = blockIdx.y * static_cast<int64_t>(kTile), row = row0 + 4 * mine.group;
  const int counted = static_cast<int>(
      max(static_cast<int64_t>(0), min(static_cast<int64_t>(4), counted_rows(a.tokens, a.row_count) - row)));
  int64_t entries[4];  // of the tables
#pragma unroll
  for (int r = 0; r < 4; ++r) entries[r] = r < counted ? a.positions[row + r] * static_cast<int64_t>(half) : 0;
  const float scale = scale_of(a.to);
  Amax<Bf16> amax;
  for (int64_t t = blockIdx.x; t < heads.tiles(); t += gridDim.x) {
    TilePlace at(blockIdx.y, 0, a.tokens, min(heads.cols, (t + 1) * heads.width));
    at.column0 = t * heads.width;
    const int64_t column = at.column0 + 8 * mine.vector;
    const bool inside = mine.in_tile && column < at.cols && row < a.tokens;
    const bool turns = column < 2 * a.heads * a.head_dim;
    Vec8<Bf16> raw[2][4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const Bf16* from = static_cast<const Bf16*>(a.dqkv) + (row + r) * heads.cols + column;
      raw[0][r] = inside && r < counted ? load8(from) : zero8<Bf16>();
      raw[1][r] = inside && r < counted ? load8(from + half) : zero8<Bf16>();
    }
    uint2 bytes[2][4];
    float sums[2][8] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float first[8], second[8];
      unpack(raw[0][r], first);
      unpack(raw[1][r], second);
      if (inside && turns && r < counted)
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
          float cos[4], sin[4];
          load4(a.cos + entries[r] + 8 * mine.part + k, cos);
          load4(a.sin + entries[r] + 8 * mine.part + k, sin);
#pragma unroll
          for (int i = 0; i < 4; ++i) turn_pair(first[k + i], second[k + i], cos[i], -sin[i]);
        }
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        sums[0][k] += first[k];
        sums[1][k] += second[k];
      }
      round_bf16(first, amax);
      round_bf16(second, amax);
      bytes[0][r] = fp8_bytes<kTo>(first, scale);
      bytes[1][r] = fp8_bytes<kTo>(second, scale);
    }
    if (a.to.rows != nullptr && inside)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        uint8_t* to = a.to.rows + (row + r) * heads.cols + column;
        store8_bytes(to, bytes[0][r]);
        store8_bytes(to + half, bytes[1][r]);
      }
    __syncthreads();  // of the tile before
    if (a.to.transposed != nullptr && mine.in_tile) {
      tile.put(mine.vector, mine.group, bytes[0]);
      tile.put(mine.partner, mine.group, bytes[1]);
    }
    if (a.sums != nullptr) {
      const float sum = over_pair_rows(mine, sums[0], sums[1], slots);  // with a barrier
      if (threadIdx.x < kTile && at.column0 + threadIdx.x < at.cols)
        static_cast<float*>(a.workspace)[blockIdx.y * heads.cols + at.column0 + threadIdx.x] = sum;
    } else {
      __syncthreads();
    }
    if (a.to.transposed != nullptr) tile.write(at, a.to.transposed);
  }
  raise_by_block<0>(a.to.amax, amax.bits());
}

}  // namespace

bool rotary_fp8_supports(int64_t head_dim) { return head_dim >= 16 && head_dim <= kTile && head_dim % 16 == 0; }

size_t rotary_fp8_backward_workspace(int64_t tokens, int64_t heads, int64_t head_dim) {
  return tile_partials_bytes(tokens, 3 * heads * head_dim);
}

cudaError_t launch(const RotaryFp8BackwardArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (args.heads < 1 || !rotary_fp8_supports(args.head_dim) || args.tokens % kFp8Multiple != 0 ||
      !aligned16(args.dqkv) || !aligned16(args.cos) || !aligned16(args.sin) || !wanted(args.to) ||
      !usable(args.to, false) || (args.sums != nullptr && args.workspace == nullptr))
    return cudaErrorInvalidValue;
  const Heads heads(args.heads, args.head_dim);
  const dim3 grid(static_cast<unsigned>(ceil_div(heads.tiles(), kTilesEach)),
                  static_cast<unsigned>(ceil_div(args.tokens, kTile)));
  const cudaError_t error = with_fp8(args.to.dtype, [&](auto to) {
    return start(rotary_fp8_backward_kernel<decltype(to)::value>, grid, dim3(kTileThreads), 0, stream, args);
  });
  if (error != cudaSuccess || args.sums == nullptr) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = ceil_div(args.tokens, kTile),
                                .width = heads.cols,
                                .outs = {args.sums}},
                stream);
}

}  // namespace esm::kernels
