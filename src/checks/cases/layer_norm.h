// Shapes of the LayerNorm kernels, for test and doctor.
#pragma once
#include <cstdint>
#include <vector>

namespace esm::cases {

struct LayerNormCase {
  int64_t rows, cols;
};

/// Every width class of the kernels, with odd row counts; the ESM-2 widths are 320, 480, 640, 1280, 2560 and 5120.
inline std::vector<LayerNormCase> layer_norm_cases() {
  return {{1, 64},    {77, 72},     {501, 128}, {333, 192},  {130, 256},  {2000, 320},  {259, 384},
          {513, 480}, {1001, 640},  {97, 768},  {65, 776},   {300, 1024}, {3001, 1280}, {47, 1288},
          {33, 2048}, {1077, 2560}, {19, 4096}, {301, 5120}, {21, 5128},  {143, 8192}};
}

}  // namespace esm::cases
