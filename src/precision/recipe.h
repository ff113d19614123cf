// Precision is data: a recipe row says in which formats each GEMM role works and what is kept in which type. Layers
// name a recipe and know no format.
#pragma once
#include <array>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace esm::precision {

enum class Precision { kFp32, kBf16 };
constexpr auto enum_names(Precision) { return std::array{"fp32", "bf16"}; }

/// Operand and result types of one GEMM; accumulation is always FP32.
struct GemmFormats {
  DType a, b, result;
};

struct Recipe {
  Precision precision;
  std::string_view name;
  DType compute;        // weights as the GEMMs read them, and activations between operations
  GemmFormats forward;  // Y = X W^T
  GemmFormats dgrad;    // dX = dY W
  GemmFormats wgrad;    // dW += dY^T X, accumulated in `result`
  DType master;         // what the optimizer updates
  DType gradient;       // accumulated over micro-batches
};

/// All recipes, in the order of the enum.
std::span<const Recipe> recipes();
const Recipe& find_recipe(Precision precision);

}  // namespace esm::precision
