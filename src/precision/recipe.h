// Precision is data: a recipe row says in which formats each GEMM role works and what is kept in which type. Layers
// name a recipe and a role and know no format.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "kernels/fp8_scale.h"
#include "precision/formats.h"

namespace esm::precision {

enum class Precision { kFp32, kBf16, kFp8Delayed, kFp8Current, kFp8Block, kFp8Outer, kMxfp8, kNvfp4 };
constexpr auto enum_names(Precision) {
  return std::array{"fp32", "bf16", "fp8_delayed", "fp8_current", "fp8_block", "fp8_outer", "mxfp8", "nvfp4"};
}

enum class GemmRole { kForward, kDgrad, kWgrad };
constexpr auto enum_names(GemmRole) { return std::array{"forward", "dgrad", "wgrad"}; }

/// One GEMM: result = a b^T over operands [rows, k] as tensor cores read FP8, k innermost; sums in FP32.
struct GemmFormats {
  Operand a, b;
  DType result;
  bool fast_accumulation = false;  // FP8: sums stay in the tensor cores, about 14 bits
  bool operator==(const GemmFormats&) const = default;
};

/// Scales that come before their tensors: how many steps are remembered, which of them decides, and octaves left free.
struct DelayedScaling {
  int64_t history_steps = 1024;
  kernels::AmaxChoice choice = kernels::AmaxChoice::kMax;
  int margin = 0;
};

struct Recipe {
  Precision precision;
  std::string_view name;
  DType compute;         // activations between operations, and weights as they are where nothing is quantized
  GemmFormats forward;   // Y = X W^T: a = X, b = W
  GemmFormats dgrad;     // dX = dY W: a = dY, b = W^T
  GemmFormats wgrad;     // dW += dY^T X: a = dY^T, b = X^T, accumulated in `result`
  DType master;          // what the optimizer updates
  DType gradient;        // accumulated over micro-batches
  DelayedScaling delay;  // defaults, for operands with delayed scaling

  const GemmFormats& gemm(GemmRole role) const;
  bool quantized() const { return forward.a.quantized(); }
  /// Whether any operand has delayed scaling, hence a history.
  bool delayed() const { return forward.a.timing == Timing::kDelayed; }
};

/// All recipes, in the order of the enum.
std::span<const Recipe> recipes();
const Recipe& find_recipe(Precision precision);

/// For the log: "E5M2 (tensor, delayed) x E4M3 (tensor, delayed) to BF16, fast sums"; without the sums where it is
/// `emulated`.
std::string describe(const GemmFormats& formats, bool emulated);

}  // namespace esm::precision
