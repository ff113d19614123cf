// Shapes of the AdamW kernel, for test, bench and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct AdamwCase {
  int64_t n;     // elements, a multiple of 64 as in flat storage
  int64_t step;  // bias correction of this update
  double weight_decay;
  bool compute;  // writes a BF16 copy
};

inline std::vector<AdamwCase> adamw_cases() {
  return {{64, 1, 0.01, true}, {128, 1, 0.0, false}, {320 * 1280 + 64, 7, 0.01, true}, {20'000'064, 1000, 0.1, true}};
}

}  // namespace esm::cases
