// CPU loops of quantize.h, on raw pointers; T is float or Bf16. Operands are worked on in bands of 128 rows, which
// share nothing.
#pragma once
#include <cstdint>

#include "ops/cpu_math.h"
#include "precision/formats.h"

namespace esm::ops::cpu {

inline constexpr int64_t kBandRows = 128;

/// Operand [rows, k]; element (r, i) is x[r * row_stride + i * k_stride], and 0 from valid_rows or valid_k on.
template <class T>
struct Quantize {
  int64_t rows, k;
  int64_t valid_rows, valid_k;
  int64_t row_stride, k_stride;
  const T* x;
  precision::Format format;
  precision::Grouping grouping;
  float scale;        // kTensor, kNv16
  int64_t row_bytes;  // of codes
  uint8_t* codes;
  float* inverses;         // null for those in bytes
  uint8_t* inverse_bytes;  // null for those in FP32
};
/// Rows band * 128 and on, with their scales. Returns the amax_bits() of all it read.
template <class T>
uint32_t quantize_band(const Quantize<T>& a, int64_t band);

struct Dequantize {
  int64_t rows, k;
  precision::Format format;
  precision::Grouping grouping;
  float scale;  // kNv16
  int64_t row_bytes;
  const uint8_t* codes;
  const float* inverses;
  const uint8_t* inverse_bytes;
  float* y;
};
void dequantize_band(const Dequantize& a, int64_t band);

/// amax_bits() of n elements.
template <class T>
uint32_t largest_bits(int64_t n, const T* x);

}  // namespace esm::ops::cpu
