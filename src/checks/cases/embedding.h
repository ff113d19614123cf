// Shapes of the embedding kernels, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct EmbeddingCase {
  int64_t cols;
  int64_t segments;    // real ones
  int64_t max_length;  // lengths are 1 .. max_length
  int64_t dummy_rows;  // of a last dummy segment; 0: none
  bool token_dropout;
};

inline std::vector<EmbeddingCase> embedding_cases() {
  return {{64, 3, 20, 5, true},       {320, 60, 100, 44, true}, {480, 7, 300, 0, false}, {640, 1, 3000, 17, true},
          {1280, 40, 200, 128, true}, {1288, 5, 60, 1, true},   {2560, 9, 90, 0, true},  {5120, 3, 40, 2, false}};
}

}  // namespace esm::cases
