// Shapes of the rotary kernel, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct RotaryCase {
  int64_t tokens, heads, head_dim;
};

/// ESM-2: 20 heads of 16, 24, 32, 64; 40 of 64 and 128. The others fill the classes of lane layouts.
inline std::vector<RotaryCase> rotary_cases() {
  return {{257, 20, 16}, {130, 20, 24}, {333, 20, 32},  {67, 3, 40}, {90, 7, 48},  {1001, 20, 64}, {203, 12, 80},
          {77, 5, 96},   {31, 2, 112},  {129, 40, 128}, {5, 1, 8},   {40, 3, 136}, {64, 2, 256}};
}

}  // namespace esm::cases
