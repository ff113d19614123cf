// How far results may lie from an oracle: one table for all tests. Bounds follow from the unit roundoff u of a type and
// the length K of the sums: rounding errors of a sum of K terms grow like sqrt(K) u (errors of random sign), and a
// chain of operations adds up; kSafety leaves room above the typical error, and planted errors in the tests show that
// the bounds still catch what they should.
#pragma once
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace esm::test {

struct Tolerance {
  double relative_l2;  // |actual - expected| / |expected|, Euclidean norms
  double of_max;       // greatest |actual - expected| / greatest |expected|
};

/// Half the distance of 1 to the next number.
constexpr double unit_roundoff(DType type) {
  switch (type) {
    case DType::kF64: return 0x1p-53;
    case DType::kF32: return 0x1p-24;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-9;
    case DType::kF8E4M3: return 0x1p-4;
    case DType::kF8E5M2: return 0x1p-3;
    case DType::kF4E2M1x2: return 0x1p-2;
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return 0;
  }
  return 0;
}

/// One operation: sums of `reduction` terms in FP32, inputs and outputs stored as `type`.
inline Tolerance operation_tolerance(DType type, int64_t reduction) {
  constexpr double kSafety = 2;
  const double sum = std::sqrt(static_cast<double>(reduction)) * unit_roundoff(DType::kF32);
  const double bound = kSafety * (sum + 2 * unit_roundoff(type));
  return {bound, 2 * bound};
}

/// A whole model, forward and backward: about 20 rounded tensors a layer on the path of a gradient, sums of `reduction`
/// terms.
inline Tolerance model_tolerance(DType type, int64_t layers, int64_t reduction) {
  const double steps = std::sqrt(20.0 * static_cast<double>(layers + 1));
  const Tolerance one = operation_tolerance(type, reduction);
  return {steps * one.relative_l2, steps * one.of_max};
}

}  // namespace esm::test
