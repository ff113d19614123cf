// Shapes of the GELU kernels, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct GeluCase {
  int64_t rows, cols;
};

/// Narrow (several rows a block), widths that split evenly and unevenly, one row, more rows than one pass.
inline std::vector<GeluCase> gelu_cases() {
  return {{1, 8},      {5, 24},     {999, 64},    {3001, 320}, {700, 1000},
          {130, 1024}, {515, 1280}, {1203, 5120}, {9, 10240},  {40, 20488}};
}

}  // namespace esm::cases
