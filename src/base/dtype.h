// Element types of tensors in memory and in files. No torch, usable from kernels.
#pragma once
#include <cstdint>
#include <string_view>

namespace esm {

/// kF4E2M1x2: two values of 4 bits, the first in the low half; in memory only, no file has it.
enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kF4E2M1x2, kI64, kI32, kI16, kI8, kU8, kBool };

/// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16: return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF4E2M1x2:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

/// Name as in safetensors files: "F32", "BF16", "F8_E4M3", "I64", "BOOL", ...; "F4_E2M1" of pairs.
std::string_view dtype_name(DType dtype);

/// Inverse of dtype_name(). Returns false and leaves `out` alone for a name that no file has.
bool parse_dtype(std::string_view name, DType& out);

}  // namespace esm
