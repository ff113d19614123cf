// Formats of GEMM operands, and which elements share a scale. Arithmetic: kernels/fp8_math.h, kernels/fp8_scale.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace esm::precision {

enum class Format : uint8_t { kF32, kBF16, kE4M3, kE5M2, kE2M1 };

std::string_view format_name(Format format);
/// Greatest finite value of a quantized format; InternalError for FP32 and BF16, which are never scaled.
float greatest(Format format);

/// Elements of an operand [rows, k] that share a scale; k is the dimension that the GEMM sums over. A transposed copy
/// is an operand of its own, with groups along its own k, so that only kTensor and kBlock128 share scales with it.
enum class Grouping : uint8_t {
  kNone,       // not quantized
  kTensor,     // all; FP32
  kOuter,      // a row; FP32. Outer-vector scaling: applied to the finished sums
  kVector128,  // 128 along k; FP32
  kBlock128,   // 128 x 128; FP32
  kMx32,       // 32 along k; UE8M0
  kNv16,       // 16 along k, UE4M3, and all, FP32
};

/// When the scale of a whole tensor is known.
enum class Timing : uint8_t {
  kCurrent,  // from the amax of the tensor itself: it is read twice
  kDelayed,  // before it exists, from the amax of earlier steps
};

/// One operand of a GEMM.
struct Operand {
  Format format = Format::kF32;
  Grouping grouping = Grouping::kNone;
  Timing timing = Timing::kCurrent;
  bool operator==(const Operand&) const = default;
  bool quantized() const { return grouping != Grouping::kNone; }
};

/// "BF16", "E4M3 (tensor, delayed)", "E2M1 (16 + tensor)".
std::string describe(const Operand& operand);

/// Where codes and scales of an operand [rows, k] lie.
struct OperandLayout {
  int64_t code_bytes;     // of a row: k, or half of it for E2M1, rounded up; codes are [rows, code_bytes]
  int64_t scales;         // how many, padding included
  bool scales_are_bytes;  // UE8M0 or UE4M3; else FP32
};
/// Scales, as cuBLASLt reads them: kTensor [1]; kOuter [rows]; kVector128 [k / 128, rows]; kBlock128 [rows / 128,
/// k / 128 padded to a multiple of 4]; kMx32 and kNv16 by kernels::group_scale_index(), of k / 32 or k / 16 groups a
/// row. All quotients are rounded up. Inverses: they multiply codes.
OperandLayout layout(const Operand& operand, int64_t rows, int64_t k);

}  // namespace esm::precision
