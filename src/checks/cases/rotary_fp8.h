// Shapes of the rotary kernel that writes FP8, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct RotaryFp8Case {
  int64_t tokens, heads, head_dim;
  int64_t counted;  // rows that count; -1: all, told by no row count
};

/// Every size of head; heads that fill tiles of q, k and v, that share tiles between them, and that leave tiles partly
/// empty.
inline std::vector<RotaryFp8Case> rotary_fp8_cases() {
  return {{272, 20, 16, -1}, {400, 20, 32, 333}, {1040, 20, 64, -1}, {2064, 20, 64, 1027},
          {144, 3, 64, 144}, {128, 5, 32, 0},    {112, 7, 16, 1000}, {96, 5, 48, 95},
          {208, 12, 80, -1}, {80, 3, 96, 33},    {16, 1, 112, -1},   {384, 40, 128, 257}};
}

}  // namespace esm::cases
