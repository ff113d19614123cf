// Tiles of 128 x 128 elements, each read once and left in FP8 in both orders.
#pragma once
#include "kernels/fp8.cuh"

namespace esm::kernels {

inline constexpr int kTile = 128;         // rows and columns
inline constexpr int kTileThreads = 256;  // 16 vectors of eight columns, 16 groups of four rows
inline constexpr int kTilePasses = 2;     // of 64 rows

/// What a thread of the block has of a tile: in pass p the rows row(p, 0..3) of eight columns from `column` on.
struct TilePlace {
  int64_t row0, column0, rows, cols;
  int vector, group;  // of the tile

  __device__ TilePlace(int64_t tile_row, int64_t tile_column, int64_t rows_, int64_t cols_)
      : row0(tile_row * kTile),
        column0(tile_column * kTile),
        rows(rows_),
        cols(cols_),
        vector(threadIdx.x % 16),
        group(threadIdx.x / 16) {}
  __device__ int64_t column() const { return column0 + 8 * vector; }
  __device__ int64_t row(int pass, int r) const { return row0 + 64 * pass + 4 * group + r; }
  /// Rows come in multiples of 16, so the four of a pass are inside together.
  __device__ bool inside(int pass) const { return row(pass, 0) < rows && column() < cols; }
};

/// All of the thread's share of [rows, cols] at `from`, in flight together; zeros outside and from row `counted` on.
template <class T>
__device__ inline void load_tile(const TilePlace& at, const T* from, int64_t counted, Vec8<T> (&raw)[kTilePasses][4]) {
#pragma unroll
  for (int p = 0; p < kTilePasses; ++p)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      raw[p][r] =
          at.inside(p) && at.row(p, r) < counted ? load8(from + at.row(p, r) * at.cols + at.column()) : zero8<T>();
}

/// Four rows of four bytes to four columns of four bytes.
__device__ inline void transpose4(uint32_t (&v)[4]) {
  const uint32_t a = __byte_perm(v[0], v[1], 0x5140), b = __byte_perm(v[2], v[3], 0x5140),
                 c = __byte_perm(v[0], v[1], 0x7362), d = __byte_perm(v[2], v[3], 0x7362);
  v[0] = __byte_perm(a, b, 0x5410);
  v[1] = __byte_perm(a, b, 0x7632);
  v[2] = __byte_perm(c, d, 0x5410);
  v[3] = __byte_perm(c, d, 0x7632);
}

/// A tile of bytes in shared memory, columns first. The word of four rows `g` of a column lies at g ^ 2 * (column / 8):
/// a warp's stores (16 vectors of columns, two groups of rows) and its loads (16 bytes, eight of a column) each meet
/// every bank once.
struct ByteTile {
  alignas(16) uint32_t words[kTile][kTile / 4];

  /// bytes[r]: row r of the thread's four in `pass`.
  __device__ void put(const TilePlace& at, int pass, const uint2 (&bytes)[4]) {
    put(at.vector, 16 * pass + at.group, bytes);
  }

  /// bytes[r]: row 4 * group + r of the eight columns of a vector.
  __device__ void put(int vector, int group, const uint2 (&bytes)[4]) {
    const int g = group ^ (2 * vector);
    uint32_t low[4] = {bytes[0].x, bytes[1].x, bytes[2].x, bytes[3].x};
    uint32_t high[4] = {bytes[0].y, bytes[1].y, bytes[2].y, bytes[3].y};
    transpose4(low);
    transpose4(high);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[8 * vector + k][g] = low[k];
      words[8 * vector + 4 + k][g] = high[k];
    }
  }

  /// To [cols, rows] at `to`, after a barrier: 128 bytes of a column by eight neighbouring threads.
  __device__ void write(const TilePlace& at, uint8_t* to) const {
#pragma unroll
    for (int j = 0; j < kTile * kTile / 16 / kTileThreads; ++j) {
      const int index = j * kTileThreads + threadIdx.x, column = index / 8, q = index % 8, vector = column / 8;
      if (at.column0 + column >= at.cols || at.row0 + 16 * q >= at.rows) continue;
      uint4 v = *reinterpret_cast<const uint4*>(&words[column][4 * (q ^ (vector / 2))]);
      if (vector % 2 != 0) v = make_uint4(v.z, v.w, v.x, v.y);
      store16(to + (at.column0 + column) * at.rows + at.row0 + 16 * q, v);
    }
  }
};

/// Writes the four rows of the thread in `pass` to [rows, cols] at `to`.
__device__ inline void write_rows(const TilePlace& at, int pass, const uint2 (&bytes)[4], uint8_t* to) {
#pragma unroll
  for (int r = 0; r < 4; ++r) store8_bytes(to + at.row(pass, r) * at.cols + at.column(), bytes[r]);
}

/// Combines over the rows of a tile what each thread has of its eight columns; the result of column t (0..127) comes
/// out in thread t, that of the other threads is meaningless. The order is fixed.
template <class T, class Combine>
__device__ inline T over_tile_rows(T (&of_thread)[8], T (&slots)[kTileThreads / 32][kTile], const Combine& combine) {
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    of_thread[k] = combine(of_thread[k], __shfl_xor_sync(0xffffffffu, of_thread[k], 16));
    // The two halves of the warp hold the same: each writes half of the columns.
    if (threadIdx.x % 32 / 16 == k / 4) slots[warp][8 * (threadIdx.x % 16) + k] = of_thread[k];
  }
  __syncthreads();
  const int column = threadIdx.x % kTile;
  T result = slots[0][column];
#pragma unroll
  for (int w = 1; w < kTileThreads / 32; ++w) result = combine(result, slots[w][column]);
  return result;
}

/// Grid of tiles: columns first, so that neighbouring blocks read neighbouring memory.
inline dim3 tile_grid(int64_t rows, int64_t cols) {
  return dim3(static_cast<unsigned>(ceil_div(cols, kTile)), static_cast<unsigned>(ceil_div(rows, kTile)));
}

/// Bytes of one FP32 partial sum per tile and column.
inline size_t tile_partials_bytes(int64_t rows, int64_t cols) {
  return rows <= 0 ? 0 : static_cast<size_t>(ceil_div(rows, kTile) * cols) * sizeof(float);
}

}  // namespace esm::kernels
