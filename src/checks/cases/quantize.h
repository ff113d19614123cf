// Shapes of the kernels that write FP8, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct QuantizeCase {
  int64_t rows, cols;
  int64_t counted;  // rows that count; -1: all, told by no row count
};

/// Below, at and beyond a tile of 128 x 128; row counts within, at and beyond four rows, none at all.
inline std::vector<QuantizeCase> quantize_cases() {
  return {{16, 16, -1},  {128, 128, 127},   {144, 272, 144},  {512, 1280, 387}, {1008, 320, -1},
          {640, 480, 0}, {112, 5120, 1000}, {2064, 96, 1027}, {32, 2560, 31},   {1296, 1296, 1169}};
}

}  // namespace esm::cases
