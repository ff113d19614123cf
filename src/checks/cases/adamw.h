// Shapes of the AdamW kernel, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct AdamwCase {
  int64_t n;     // elements, a multiple of 64 as in flat storage
  int64_t step;  // bias correction of this update
  bool compute;  // FP32 master: writes a BF16 copy
  bool groups;   // three groups with their own lr factor and weight decay
};

inline std::vector<AdamwCase> adamw_cases() {
  return {
      {64, 1, true, false}, {192, 1, false, true}, {320 * 1280 + 64, 7, true, true}, {5'000'064, 1000, true, false}};
}

}  // namespace esm::cases
