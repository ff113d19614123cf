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

device::GemmScale gemm_scale(Grouping grouping) {
  switch (grouping) {
    case Grouping::kTensor: return device::GemmScale::kTensor;
    case Grouping::kOuter: return device::GemmScale::kOuterVector;
    case Grouping::kVector128: return device::GemmScale::kVector128;
    case Grouping::kBlock128: return device::GemmScale::kBlock128;
    case Grouping::kMx32: return device::GemmScale::kMx32;
    case Grouping::kNv16: return device::GemmScale::kNv16;
    case Grouping::kNone: break;
  }
  fail<InternalError>("an operand without scales is not in codes");
}

DType code_type(Format format) {
  switch (format) {
    case Format::kE4M3: return DType::kF8E4M3;
    case Format::kE5M2: return DType::kF8E5M2;
    case Format::kE2M1: return DType::kF4E2M1x2;
    case Format::kF32:
    case Format::kBF16: break;
  }
  fail<InternalError>("{} has no codes", format_name(format));
}

device::GemmDesc desc(const GemmFormats& g, GemmRole role, const Sizes& s) {
  const device::Fp8Operand a = fp8_operand(g.a), b = fp8_operand(g.b);
  switch (role) {
    case GemmRole::kForward:
      return device::Fp8ForwardGemm{.tokens = s.tokens,
                                    .out = s.out,
                                    .in = s.in,
                                    .weight = b,
                                    .x = a,
                                    .fast_accumulation = g.fast_accumulation,
                                    .y = g.result,
                                    .bias = true}
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

/// A size that is no multiple of `step`, as products or quantizing kernels need it; each is the k of one product.
std::string size_obstacle(const Sizes& s, int64_t step) {
  for (const auto& [name, size] : {std::pair{"in", s.in}, std::pair{"out", s.out}, std::pair{"tokens", s.tokens}})
    if (size % step != 0) return fmt::format("{} = {} is no multiple of {}", name, size, step);
  return "";
}

void check_device(const Recipe& recipe, const Sizes& s, int capability) {
  const std::string lacks = device::fp8_device_obstacle(desc(recipe.forward, GemmRole::kForward, s), capability);
  if (lacks.empty()) return;
  fail<DeviceError>("precision {} needs another device: {}; use {}", recipe.name, lacks,
                    capability < device::kLeastFp8Capability ? "bf16" : "fp8_current, fp8_delayed or bf16");
}

/// MXFP8 or NVFP4 on CUDA.
LinearFormats resolve_small_groups(const Recipe& recipe, const Sizes& s, int capability) {
  if (const std::string why = size_obstacle(s, 16); !why.empty()) return bf16_instead(why);
  const LinearFormats formats = formats_of(recipe, Path::kHardware, "");
  std::string lacking = device::fp8_device_obstacle(desc(recipe.forward, GemmRole::kForward, s), capability);
  if (lacking.empty()) lacking = size_obstacle(s, 32);
  return lacking.empty() ? formats : emulated_instead(formats, lacking);
}

}  // namespace

device::Fp8Operand fp8_operand(const Operand& operand) {
  return {.dtype = code_type(operand.format), .scale = gemm_scale(operand.grouping)};
}

std::vector<device::GemmDesc> products_of(const LinearFormats& formats, int64_t out, int64_t in, int64_t tokens) {
  const Sizes sizes{out, in, tokens};
  std::vector<device::GemmDesc> result;
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad}) {
    device::GemmDesc product = desc(formats.gemm(role), role, sizes);
    for (const bool accumulate : {false, true}) {
      if (accumulate && role == GemmRole::kDgrad) continue;
      product.accumulate = accumulate;
      result.push_back(product);
    }
  }
  return result;
}

LinearFormats emulated_instead(const LinearFormats& formats, const std::string& lacking) {
  LinearFormats result = formats;
  result.path = Path::kEmulated;
  result.why = lacking + ": emulated by this program: quantized, dequantized, multiplied in BF16";
  return result;
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
  if (formats_of(recipe, Path::kHardware, "").small_groups()) return resolve_small_groups(recipe, sizes, capability);
  check_device(recipe, sizes, capability);
  if (const std::string why = size_obstacle(sizes, in_blocks(recipe) ? 128 : 16); !why.empty())
    return bf16_instead(why);
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad}) {
    const std::string why = device::fp8_obstacle(desc(recipe.gemm(role), role, sizes));
    ESM_CHECK(why.empty(), "{} in {}: {}", enum_names(role)[static_cast<size_t>(role)], recipe.name, why);
  }
  return formats_of(recipe, Path::kHardware, "");
}

}  // namespace esm::precision
