// Shapes of the kernel that writes MXFP8 and NVFP4, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct QuantizeGroupsCase {
  int64_t rows, cols;
  int64_t counted;  // rows that count; -1: all, told by no row count
};

/// Below, at and beyond a tile of scales (128 rows of 4 groups: 64 or 128 elements) both ways; row counts within, at
/// the end of and beyond a group, none at all.
inline std::vector<QuantizeGroupsCase> quantize_groups_cases() {
  return {{32, 32, -1},  {64, 96, -1},       {128, 128, 127},  {160, 320, 144}, {512, 1280, 387},
          {640, 480, 0}, {224, 3840, 10000}, {1024, 160, 992}, {32, 1312, 31},  {4096, 320, -1}};
}

}  // namespace esm::cases
