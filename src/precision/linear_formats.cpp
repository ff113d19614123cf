#include "precision/linear_formats.h"

#include <utility>

#include "base/check.h"
#include "precision/fp8_operand.h"

namespace esm::precision {
namespace {

struct Sizes {
  int64_t out, in, tokens;
};

LinearFormats formats_of(const Recipe& recipe, Path path, std::string why) {
  return {.x = recipe.forward.a,
          .weight = recipe.forward.b,
          .dy = recipe.dgrad.a,
          .forward = recipe.forward,
          .dgrad = recipe.dgrad,
          .wgrad = recipe.wgrad,
          .path = path,
          .why = std::move(why)};
}

LinearFormats bf16_instead(const std::string& why) {
  return formats_of(find_recipe(Precision::kBf16), Path::kPlain, why + ": BF16");
}

bool in_blocks(const Recipe& recipe) { return recipe.forward.b.grouping == Grouping::kBlock128; }

/// MXFP8 and NVFP4, for which this program has no products on any device.
bool always_emulated(const Recipe& recipe) {
  return recipe.forward.a.grouping == Grouping::kMx32 || recipe.forward.a.grouping == Grouping::kNv16;
}

device::GemmScale gemm_scale(Grouping grouping) {
  switch (grouping) {
    case Grouping::kTensor: return device::GemmScale::kTensor;
    case Grouping::kOuter: return device::GemmScale::kOuterVector;
    case Grouping::kVector128: return device::GemmScale::kVector128;
    case Grouping::kBlock128: return device::GemmScale::kBlock128;
    case Grouping::kNone:
    case Grouping::kMx32:
    case Grouping::kNv16: break;
  }
  fail<InternalError>("no FP8 product has operands with such scales");
}

device::GemmDesc desc(const Recipe& recipe, GemmRole role, const Sizes& s) {
  const GemmFormats& g = recipe.gemm(role);
  const device::Fp8Operand a = fp8_operand(g.a), b = fp8_operand(g.b);
  switch (role) {
    case GemmRole::kForward:
      return device::Fp8ForwardGemm{.tokens = s.tokens,
                                    .out = s.out,
                                    .in = s.in,
                                    .weight = b,
                                    .x = a,
                                    .fast_accumulation = g.fast_accumulation,
                                    .y = g.result}
          .desc();
    case GemmRole::kDgrad:
      return device::Fp8DgradGemm{.tokens = s.tokens,
                                  .out = s.out,
                                  .in = s.in,
                                  .weight_t = b,
                                  .dy = a,
                                  .fast_accumulation = g.fast_accumulation,
                                  .dx = g.result}
          .desc();
    case GemmRole::kWgrad:
      return device::Fp8WgradGemm{.tokens = s.tokens,
                                  .out = s.out,
                                  .in = s.in,
                                  .x_t = b,
                                  .dy_t = a,
                                  .fast_accumulation = g.fast_accumulation,
                                  .dweight = g.result}
          .desc();
  }
  fail<InternalError>("no such role of a GEMM");
}

/// A size that products (or, for all recipes, the quantizing kernels) cannot take; each is the k of one product.
std::string size_obstacle(const Recipe& recipe, const Sizes& s) {
  const int64_t step = in_blocks(recipe) ? 128 : 16;
  for (const auto& [name, size] : {std::pair{"in", s.in}, std::pair{"out", s.out}, std::pair{"tokens", s.tokens}})
    if (size % step != 0) return fmt::format("{} = {} is no multiple of {}", name, size, step);
  return "";
}

void check_device(const Recipe& recipe, const Sizes& s, int capability) {
  const std::string lacks = device::fp8_device_obstacle(desc(recipe, GemmRole::kForward, s), capability);
  if (lacks.empty()) return;
  fail<DeviceError>("precision {} needs another device: {}; use {}", recipe.name, lacks,
                    capability < device::kLeastFp8Capability ? "bf16" : "fp8_current, fp8_delayed or bf16");
}

}  // namespace

device::Fp8Operand fp8_operand(const Operand& operand) {
  ESM_CHECK(operand.format == Format::kE4M3 || operand.format == Format::kE5M2, "{} is no FP8 operand",
            format_name(operand.format));
  return {.dtype = operand.format == Format::kE4M3 ? DType::kF8E4M3 : DType::kF8E5M2,
          .scale = gemm_scale(operand.grouping)};
}

const GemmFormats& LinearFormats::gemm(GemmRole role) const {
  switch (role) {
    case GemmRole::kForward: return forward;
    case GemmRole::kDgrad: return dgrad;
    case GemmRole::kWgrad: return wgrad;
  }
  fail<InternalError>("no such role of a GEMM");
}

LinearFormats resolve(const Recipe& recipe, int64_t out, int64_t in, int64_t tokens, int capability) {
  if (!recipe.quantized()) return formats_of(recipe, Path::kPlain, "");
  if (capability == 0)
    return formats_of(recipe, Path::kEmulated,
                      "emulated on the CPU: quantized, dequantized, multiplied in a wider type");
  const Sizes sizes{out, in, tokens};
  if (always_emulated(recipe)) {
    if (const std::string why = size_obstacle(recipe, sizes); !why.empty()) return bf16_instead(why);
    return formats_of(recipe, Path::kEmulated, "emulated by this program: quantized, dequantized, multiplied in BF16");
  }
  check_device(recipe, sizes, capability);
  if (const std::string why = size_obstacle(recipe, sizes); !why.empty()) return bf16_instead(why);
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad}) {
    const std::string why = device::fp8_obstacle(desc(recipe, role, sizes));
    ESM_CHECK(why.empty(), "{} in {}: {}", enum_names(role)[static_cast<size_t>(role)], recipe.name, why);
  }
  return formats_of(recipe, Path::kHardware, "");
}

}  // namespace esm::precision
