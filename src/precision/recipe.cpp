#include "precision/recipe.h"

#include "base/check.h"

namespace esm::precision {
namespace {

constexpr DType F32 = DType::kF32;
constexpr DType BF16 = DType::kBF16;

constexpr Operand plain(Format format) { return {.format = format}; }
constexpr Operand scaled(Format format, Grouping grouping) { return {.format = format, .grouping = grouping}; }
constexpr Operand delayed(Format format) {
  return {.format = format, .grouping = Grouping::kTensor, .timing = Timing::kDelayed};
}

constexpr Operand kF32 = plain(Format::kF32), kBf16 = plain(Format::kBF16);
// Gradients have the wider range, activations and weights the finer steps (Micikevicius et al., "FP8 Formats for Deep
// Learning", 2022). Scales of small groups bring gradients into the range of E4M3, too.
constexpr Operand kDelayed = delayed(Format::kE4M3), kDelayedGradient = delayed(Format::kE5M2);
constexpr Operand kCurrent = scaled(Format::kE4M3, Grouping::kTensor),
                  kCurrentGradient = scaled(Format::kE5M2, Grouping::kTensor);
constexpr Operand kOuter = scaled(Format::kE4M3, Grouping::kOuter);
constexpr Operand kVector = scaled(Format::kE4M3, Grouping::kVector128),
                  kBlock = scaled(Format::kE4M3, Grouping::kBlock128);
constexpr Operand kMx = scaled(Format::kE4M3, Grouping::kMx32);
constexpr Operand kNv = scaled(Format::kE2M1, Grouping::kNv16);

/// Fast sums where k is a dimension of the model: measured on an H200 over k <= 5,120 their relative L2 error is 1e-3,
/// beside the 6e-2 of quantizing itself. wgrad sums over all tokens: over 65,536 of them fast sums lose 0.4 % of
/// operands with zero mean and 26 % of others. Scales in blocks take no fast sums, and the rest is emulated or has
/// none.
constexpr Recipe quantized(Precision precision, std::string_view name, Operand x, Operand weight, Operand dy) {
  const bool fast = x.grouping == Grouping::kTensor || x.grouping == Grouping::kOuter;
  return {.precision = precision,
          .name = name,
          .compute = BF16,
          .forward = {x, weight, BF16, fast},
          .dgrad = {dy, weight, BF16, fast},
          .wgrad = {dy, x, F32},
          .master = F32,
          .gradient = F32};
}

constexpr Recipe kRecipes[] = {
    {.precision = Precision::kFp32,
     .name = "fp32",
     .compute = F32,
     .forward = {kF32, kF32, F32},
     .dgrad = {kF32, kF32, F32},
     .wgrad = {kF32, kF32, F32},
     .master = F32,
     .gradient = F32},
    {.precision = Precision::kBf16,
     .name = "bf16",
     .compute = BF16,
     .forward = {kBf16, kBf16, BF16},
     .dgrad = {kBf16, kBf16, BF16},
     .wgrad = {kBf16, kBf16, F32},
     .master = F32,
     .gradient = F32},
    quantized(Precision::kFp8Delayed, "fp8_delayed", kDelayed, kDelayed, kDelayedGradient),
    quantized(Precision::kFp8Current, "fp8_current", kCurrent, kCurrent, kCurrentGradient),
    quantized(Precision::kFp8Block, "fp8_block", kVector, kBlock, kVector),
    quantized(Precision::kFp8Outer, "fp8_outer", kOuter, kOuter, kOuter),
    quantized(Precision::kMxfp8, "mxfp8", kMx, kMx, kMx),
    quantized(Precision::kNvfp4, "nvfp4", kNv, kNv, kNv),
};

}  // namespace

const GemmFormats& Recipe::gemm(GemmRole role) const {
  switch (role) {
    case GemmRole::kForward: return forward;
    case GemmRole::kDgrad: return dgrad;
    case GemmRole::kWgrad: return wgrad;
  }
  fail<InternalError>("no such role of a GEMM");
}

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& find_recipe(Precision precision) {
  for (const Recipe& recipe : kRecipes)
    if (recipe.precision == precision) return recipe;
  fail<InternalError>("internal error: no recipe for precision {}", static_cast<int>(precision));
}

std::string describe(const GemmFormats& formats, bool emulated) {
  return fmt::format("{} x {} to {}{}", describe(formats.a), describe(formats.b), dtype_name(formats.result),
                     emulated                    ? ", emulated"
                     : formats.fast_accumulation ? ", fast sums"
                                                 : "");
}

}  // namespace esm::precision
