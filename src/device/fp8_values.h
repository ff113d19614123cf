// FP8 values on the host, one at a time, by type (codes: kernels/fp8_math.h).
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "kernels/fp8_math.h"

namespace esm::device {

/// Code of kF8E4M3 or kF8E5M2: nearest even, saturated.
inline uint8_t fp8_from_float(DType dtype, float value) {
  return static_cast<uint8_t>(dtype == DType::kF8E5M2 ? kernels::encode_e5m2(value) : kernels::encode_e4m3(value));
}

inline float float_from_fp8(DType dtype, uint8_t code) {
  return dtype == DType::kF8E5M2 ? kernels::decode_e5m2(code) : kernels::decode_e4m3(code);
}

}  // namespace esm::device
