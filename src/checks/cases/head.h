// Shapes of the kernels of the masked-language head, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct RowsCase {
  int64_t total_rows, capacity, count, cols;
};
inline std::vector<RowsCase> rows_cases() {
  return {{100, 30, 21, 64}, {1000, 168, 150, 320}, {777, 128, 0, 1280}, {3000, 480, 480, 1280}, {50, 9, 5, 5120}};
}

struct CrossEntropyCase {
  int64_t capacity, scored;
  int classes;
  float label_smoothing;
  float scale;  // of the logits
};
inline std::vector<CrossEntropyCase> cross_entropy_cases() {
  return {{1, 1, 33, 0, 3},      {300, 0, 33, 0, 3},       {1000, 777, 33, 0, 3}, {6000, 5500, 33, 0.1f, 4},
          {257, 257, 33, 0, 40}, {130, 100, 64, 0.05f, 2}, {64, 63, 2, 0, 1},     {10496, 9830, 33, 0, 3}};
}

}  // namespace esm::cases
