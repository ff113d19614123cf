// Shapes of the kernel that emulates MX and NVFP4, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct FakeQuantizeCase {
  int64_t rows, cols;
  int64_t counted;  // rows that count; -1: all, told by no row count
};

/// Last groups that are short both ways; below and beyond a warp's 32 rows of 64 columns; row counts within and at the
/// end of a group, none at all.
inline std::vector<FakeQuantizeCase> fake_quantize_cases() {
  return {{16, 16, -1},  {1, 8, -1},         {48, 80, 33},     {129, 144, -1}, {512, 1280, 387},
          {640, 480, 0}, {208, 3840, 10000}, {1040, 320, 992}, {33, 1296, 31}};
}

}  // namespace esm::cases
