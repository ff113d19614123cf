#include "base/dtype.h"

#include <array>
#include <utility>

namespace esm {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 12> kNames{{{DType::kF64, "F64"},
                                                                     {DType::kF32, "F32"},
                                                                     {DType::kF16, "F16"},
                                                                     {DType::kBF16, "BF16"},
                                                                     {DType::kF8E4M3, "F8_E4M3"},
                                                                     {DType::kF8E5M2, "F8_E5M2"},
                                                                     {DType::kI64, "I64"},
                                                                     {DType::kI32, "I32"},
                                                                     {DType::kI16, "I16"},
                                                                     {DType::kI8, "I8"},
                                                                     {DType::kU8, "U8"},
                                                                     {DType::kBool, "BOOL"}}};
}  // namespace

std::string_view dtype_name(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  return dtype == DType::kF4E2M1x2 ? "F4_E2M1" : "?";
}

bool parse_dtype(std::string_view text, DType& out) {
  for (const auto& [value, name] : kNames) {
    if (name == text) {
      out = value;
      return true;
    }
  }
  return false;
}

}  // namespace esm
