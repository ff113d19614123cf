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

/// Of eight BF16 values, zeros if not `valid`; stays where it is written, which keeps several of them in flight.
__device__ inline Vec8<Bf16> load8_here(const Bf16* p, bool valid) {
  Vec8<Bf16> v;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.s32 valid, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@valid ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(v.a.x), "=&r"(v.a.y), "=&r"(v.a.z), "=&r"(v.a.w)
      : "l"(p), "r"(static_cast<int>(valid)));
  return v;
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

/// read(r): four bytes, of four neighbouring columns, of row r of 16. They go to `to` column by column.
template <class Read>
__device__ inline void write_four_columns(uint8_t* to, int64_t column_stride, const Read& read) {
  uint32_t words[4][4];  // [four rows][column]
#pragma unroll
  for (int q = 0; q < 4; ++q) {
#pragma unroll
    for (int r = 0; r < 4; ++r) words[q][r] = read(4 * q + r);
    transpose4(words[q]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k, to += column_stride)
    store16(to, make_uint4(words[0][k], words[1][k], words[2][k], words[3][k]));
}

/// A tile of bytes in shared memory, rows first. The word of four columns `w` of row r lies at w ^ 4 * (r / 16): a
/// warp's stores (16 vectors of two rows) and its loads (four words of eight rows, 16 rows apart) each meet every bank
/// evenly.
struct ByteTile {
  alignas(128) uint32_t words[kTile][kTile / 4];

  /// Row r of the thread's four in `pass`.
  __device__ void put(const TilePlace& at, int pass, int r, const uint2& bytes) {
    const int row = 64 * pass + 4 * at.group + r;
    *reinterpret_cast<uint2*>(&words[row][(2 * at.vector) ^ (16 * pass + at.group / 4 * 4)]) = bytes;
  }
  __device__ void put(const TilePlace& at, int pass, const uint2 (&bytes)[4]) {
    put(at.vector, 16 * pass + at.group, bytes);
  }
  /// bytes[r]: row 4 * group + r of the eight columns of a vector.
  __device__ void put(int vector, int group, const uint2 (&bytes)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) put(vector, 4 * group + r, bytes[r]);
  }
  __device__ void put(int vector, int row, const uint2& bytes) {
    *reinterpret_cast<uint2*>(&words[row][(2 * vector) ^ (row / 16 * 4)]) = bytes;
  }

  /// To [cols, rows] at `to`, after a barrier: 128 bytes of a column by eight neighbouring threads.
  __device__ void write(const TilePlace& at, uint8_t* to) const {
    const int q = threadIdx.x % 8, word = threadIdx.x / 8;
    const int64_t column = at.column0 + 4 * word, row = at.row0 + 16 * q;
    if (column >= at.cols || row >= at.rows) return;
    const uint32_t* from = &words[16 * q][word ^ (4 * q)];
    write_four_columns(to + column * at.rows + row, at.rows, [&](int r) { return from[r * (kTile / 4)]; });
  }
};

/// Writes the four rows of the thread in `pass` to [rows, cols] at `to`.
__device__ inline void write_rows(const TilePlace& at, int pass, const uint2 (&bytes)[4], uint8_t* to) {
  to += at.row(pass, 0) * at.cols + at.column();
#pragma unroll
  for (int r = 0; r < 4; ++r, to += at.cols) store8_bytes(to, bytes[r]);
}

/// What the warps of a block have of each column of a tile.
template <class T>
using TileSlots = T[kTileThreads / 32][kTile];

/// Combines over the rows of a tile what each thread has of its eight columns, in a fixed order: first over the warp,
/// then, after a barrier, over the warps. The result of column t (0..127) comes out in thread t, that of the other
/// threads is meaningless.
template <class T, class Combine>
__device__ inline void over_warp_rows(T (&of_thread)[8], TileSlots<T>& slots, const Combine& combine) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    of_thread[k] = combine(of_thread[k], __shfl_xor_sync(0xffffffffu, of_thread[k], 16));
    // The two halves of the warp hold the same: each writes half of the columns.
    if (threadIdx.x % 32 / 16 == k / 4) slots[threadIdx.x / 32][8 * (threadIdx.x % 16) + k] = of_thread[k];
  }
}
template <class T, class Combine>
__device__ inline T over_warps(const TileSlots<T>& slots, const Combine& combine) {
  const int column = threadIdx.x % kTile;
  T result = slots[0][column];
#pragma unroll
  for (int w = 1; w < kTileThreads / 32; ++w) result = combine(result, slots[w][column]);
  return result;
}
template <class T, class Combine>
__device__ inline T over_tile_rows(T (&of_thread)[8], TileSlots<T>& slots, const Combine& combine) {
  over_warp_rows(of_thread, slots, combine);
  __syncthreads();
  return over_warps(slots, combine);
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
