// Shapes of the reductions, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct ColumnSumCase {
  int64_t rows, cols;
};
inline std::vector<ColumnSumCase> column_sum_cases() {
  return {{1, 8}, {3, 64}, {5001, 320}, {777, 960}, {1203, 1280}, {2049, 3840}, {301, 5120}, {33, 20480}};
}

/// Buffers of one sum of squares.
inline std::vector<std::vector<int64_t>> sum_of_squares_cases() {
  return {{4}, {64, 0, 128}, {3'000'064, 64, 500'032, 1'000'000}, std::vector<int64_t>(64, 4096 + 4)};
}

}  // namespace esm::cases
