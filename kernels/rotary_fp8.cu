#include "kernels/rotary_fp8.h"

#include "kernels/bulk_copy.cuh"
#include "kernels/fp8_tile.cuh"
#include "kernels/partials.h"
#include "kernels/rotary_math.cuh"

namespace esm::kernels {
namespace {

constexpr int kTilesEach = 3;  // of a block
constexpr int kBlocks = 3;     // of a multiprocessor

/// How heads lie in tiles, which are as wide as their heads are together: up to 128 columns.
struct Heads {
  int64_t cols;         // of all heads
  int64_t turned_cols;  // of q and k
  int tiles, width;
  int head_dim, vectors;  // of a half
  int bit;                // log2(vectors) rounded down, + 1

  Heads(int64_t heads, int64_t head_dim_)
      : cols(3 * heads * head_dim_), turned_cols(2 * heads * head_dim_), head_dim(static_cast<int>(head_dim_)) {
    width = kTile / head_dim * head_dim;
    tiles = static_cast<int>(ceil_div(cols, width));
    vectors = head_dim / 16;
    bit = 1;
    while (2 << (bit - 1) <= vectors) ++bit;
  }
};

/// What a thread has of a tile: four rows of eight columns of the first half of a head and of their partners in the
/// second. A warp has eight such pairs of vectors and four groups of rows, chosen so that its stores to a ByteTile meet
/// every bank once: the vectors of one half leave out bit log2(vectors) of their number, which the groups supply.
struct PairPlace {
  int vector, partner;  // of the tile
  int part;             // of a half, in vectors
  int group;
  bool in_tile;

  __device__ explicit PairPlace(const Heads& heads) {
    const int pair = threadIdx.x % 8, lanes = threadIdx.x % 32 / 8, warp = threadIdx.x / 32;
    const int head = pair / heads.vectors;
    part = pair - head * heads.vectors;
    vector = head * 2 * heads.vectors + part;
    partner = vector + heads.vectors;
    in_tile = (head + 1) * heads.head_dim <= kTile;
    const int bit = heads.bit, below = (1 << (bit - 1)) - 1;
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

/// What turns eight pairs of a row.
struct Turn {
  float cos[8], sin[8];

  __device__ void load(const float* cos_from, const float* sin_from) {
    load8(cos_from, cos);
    load8(sin_from, sin);
  }
  __device__ static void load8(const float* from, float (&v)[8]) {
    const float4 a = __ldg(reinterpret_cast<const float4*>(from)), b = __ldg(reinterpret_cast<const float4*>(from) + 1);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  }
};

constexpr int kStagedBytes = 2 * 4 * kTileThreads * 16;  // a tile in BF16

// A block takes the same columns of q, k and v, if they fill tiles, so that the rows of the tables that it read first
// are still near when it reads them again. As soon as a thread has read a vector of a tile, that of the next tile is on
// its way to the same place in shared memory, which no other thread reads.
template <DType kTo>
__global__ void __launch_bounds__(kTileThreads, kBlocks)
    rotary_fp8_backward_kernel(RotaryFp8BackwardArgs a, const __grid_constant__ Heads heads) {
  extern __shared__ __align__(16) uint8_t staged[];  // [row of four][half of a head][thread], 16 bytes
  __shared__ ByteTile tile;
  alignas(16) __shared__ float slots[kTileThreads / 32][kTile];
  const PairPlace mine(heads);
  const int half = heads.head_dim / 2;
  const int64_t row = blockIdx.y * static_cast<int64_t>(kTile) + 4 * mine.group;
  const int counted = static_cast<int>(
      max(static_cast<int64_t>(0), min(static_cast<int64_t>(4), counted_rows(a.tokens, a.row_count) - row)));
  int entries[4];  // of the tables
#pragma unroll
  for (int r = 0; r < 4; ++r) entries[r] = (r < counted ? a.positions[row + r] * half : 0) + 8 * mine.part;
  const uint32_t own = shared_address(staged) + 16 * threadIdx.x;
  const auto place = [&](int r, int h) { return own + (2 * r + h) * 16 * kTileThreads; };
  const Bf16* ahead = static_cast<const Bf16*>(a.dqkv);  // of the next vector to fetch
  int ahead_rows = 0;                                    // that are there
  const auto go_ahead = [&](int t) {
    const int64_t column = static_cast<int64_t>(t) * heads.width + 8 * mine.vector;
    ahead_rows = t < heads.tiles && mine.in_tile && column < heads.cols ? counted : 0;
    ahead = static_cast<const Bf16*>(a.dqkv) + (ahead_rows > 0 ? row * heads.cols + column : 0);
  };
  const auto fetch = [&](int r) {
    copy16(place(r, 0), ahead, r < ahead_rows);
    copy16(place(r, 1), ahead + half, r < ahead_rows);
    if (r + 1 < ahead_rows) ahead += heads.cols;
  };
  go_ahead(blockIdx.x);
#pragma unroll
  for (int r = 0; r < 4; ++r) fetch(r);
  const float scale = scale_of(a.to);
  Amax<Bf16> amax;
  for (int t = blockIdx.x; t < heads.tiles; t += gridDim.x) {
    TilePlace at(blockIdx.y, 0, a.tokens, min(heads.cols, static_cast<int64_t>(t + 1) * heads.width));
    at.column0 = static_cast<int64_t>(t) * heads.width;
    const int64_t column = at.column0 + 8 * mine.vector;
    const bool inside = mine.in_tile && column < at.cols && row < a.tokens;
    const bool turns = inside && column < heads.turned_cols;
    float sums[2][8] = {};
    uint8_t* to = a.to.rows + row * heads.cols + column;
    go_ahead(t + gridDim.x);
    wait_for_copies();
    __syncthreads();  // of the tile before
#pragma unroll 1
    for (int r = 0; r < 4; ++r) {
      Turn turn;
      if (turns) turn.load(a.cos + entries[0], a.sin + entries[0]);
      const int this_row = entries[0];  // turned round, since registers have no index
      entries[0] = entries[1], entries[1] = entries[2], entries[2] = entries[3], entries[3] = this_row;
      float first[8], second[8];
      unpack(Vec8<Bf16>{read16(place(r, 0))}, first);
      unpack(Vec8<Bf16>{read16(place(r, 1))}, second);
      fetch(r);
      if (turns && r < counted)
#pragma unroll
        for (int k = 0; k < 8; ++k) turn_pair(first[k], second[k], turn.cos[k], -turn.sin[k]);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        sums[0][k] += first[k];
        sums[1][k] += second[k];
      }
      round_bf16(first, amax);
      round_bf16(second, amax);
      const uint2 bytes[2] = {fp8_bytes<kTo>(first, scale), fp8_bytes<kTo>(second, scale)};
      if (a.to.rows != nullptr && inside) {
        store8_bytes(to, bytes[0]);
        store8_bytes(to + half, bytes[1]);
        to += heads.cols;
      }
      if (a.to.transposed != nullptr && mine.in_tile) {
        tile.put(mine.vector, 4 * mine.group + r, bytes[0]);
        tile.put(mine.partner, 4 * mine.group + r, bytes[1]);
      }
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
  const dim3 grid(static_cast<unsigned>(ceil_div(heads.tiles, kTilesEach)),
                  static_cast<unsigned>(ceil_div(args.tokens, kTile)));
  const cudaError_t error = with_fp8(args.to.dtype, [&](auto to) {
    const auto kernel = rotary_fp8_backward_kernel<decltype(to)::value>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStagedBytes);
    if (error != cudaSuccess) return error;
    return start(kernel, grid, dim3(kTileThreads), kStagedBytes, stream, args, heads);
  });
  if (error != cudaSuccess || args.sums == nullptr) return error;
  return launch(AddPartialsArgs{.partials = static_cast<const float*>(args.workspace),
                                .count = ceil_div(args.tokens, kTile),
                                .width = heads.cols,
                                .outs = {args.sums}},
                stream);
}

}  // namespace esm::kernels
