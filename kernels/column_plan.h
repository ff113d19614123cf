// How blocks share a [rows, cols] matrix when each thread keeps eight columns and walks down rows, so that column sums
// stay in registers.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/grid.h"

namespace esm::kernels {

/// Thread t of block (b, c) has columns 8 * (b * width + t % width) .. + 7 (if t < width * lanes and the vector is
/// below cols / 8) of the rows c * chunk_rows + t / width, stepping by `lanes`, below (c + 1) * chunk_rows.
struct ColumnPlan {
  int threads = 0;         // of a block
  int width = 0;           // vectors of eight columns that a block spans
  int lanes = 0;           // rows that it takes at once
  int column_blocks = 0;   // grid x
  int row_chunks = 0;      // grid y
  int64_t chunk_rows = 0;  // rows of a chunk
};

/// As many blocks as fit at once on kMultiprocessors that hold `threads_each` of this kernel's threads, or just fewer:
/// a second, nearly empty wave would double the time. Depends on nothing of the device, so that sums do not either.
inline ColumnPlan column_plan(int64_t rows, int64_t cols, int64_t threads_each) {
  const int64_t vectors = cols / 8;
  ColumnPlan p;
  if (vectors < 128) {
    p.width = static_cast<int>(vectors);
    p.lanes = 256 / p.width;
    p.threads = static_cast<int>(32 * ceil_div(p.width * p.lanes, 32));
    p.column_blocks = 1;
  } else {
    p.lanes = 1;
    int64_t least_idle = INT64_MAX;
    for (int64_t blocks = ceil_div(vectors, 256); blocks <= ceil_div(vectors, 64); ++blocks) {
      const int64_t width = ceil_div(vectors, blocks), threads = 32 * ceil_div(width, 32),
                    idle = threads * blocks - vectors;
      if (idle >= least_idle) continue;
      least_idle = idle;
      p.width = static_cast<int>(width);
      p.threads = static_cast<int>(threads);
      p.column_blocks = static_cast<int>(blocks);
    }
  }
  const int64_t wanted = std::max<int64_t>(1, kMultiprocessors * (threads_each / p.threads) / p.column_blocks);
  p.chunk_rows = std::max<int64_t>(ceil_div(rows, wanted), 4 * p.lanes);
  p.row_chunks = static_cast<int>(std::max<int64_t>(1, ceil_div(rows, p.chunk_rows)));
  return p;
}

/// Bytes of one partial sum per chunk and column.
inline size_t column_partials_bytes(const ColumnPlan& plan, int64_t cols) {
  return static_cast<size_t>(plan.row_chunks) * static_cast<size_t>(cols) * sizeof(float);
}

}  // namespace esm::kernels
