// What kernels that write FP8 must leave, byte for byte. Plain C++.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/fp8_math.h"

namespace esm::checks {

inline uint8_t fp8_byte(DType to, float x) {
  return static_cast<uint8_t>(to == DType::kF8E4M3 ? kernels::encode_e4m3(x) : kernels::encode_e5m2(x));
}

/// A matrix in FP8 in both orders.
struct Fp8Matrix {
  std::vector<uint8_t> rows, transposed;
  float amax = 0;
};

/// Scale of an element of each order from its row and column.
template <class RowScale, class ColumnScale>
Fp8Matrix fp8_matrix(const std::vector<float>& x, int64_t rows, int64_t cols, int64_t counted, DType to,
                     const RowScale& row_scale, const ColumnScale& column_scale) {
  Fp8Matrix out{std::vector<uint8_t>(x.size()), std::vector<uint8_t>(x.size())};
  uint32_t amax = 0;
  for (int64_t r = 0; r < std::min(rows, counted); ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float value = x[static_cast<size_t>(r * cols + c)];
      amax = std::max(amax, kernels::bits_of(value) & kernels::kMagnitudeBits);
      out.rows[static_cast<size_t>(r * cols + c)] = fp8_byte(to, value * row_scale(r, c));
      out.transposed[static_cast<size_t>(c * rows + r)] = fp8_byte(to, value * column_scale(r, c));
    }
  out.amax = kernels::float_of(amax);
  return out;
}
inline Fp8Matrix fp8_matrix(const std::vector<float>& x, int64_t rows, int64_t cols, int64_t counted, DType to,
                            float scale) {
  const auto same = [=](int64_t, int64_t) { return scale; };
  return fp8_matrix(x, rows, cols, counted, to, same, same);
}

}  // namespace esm::checks
