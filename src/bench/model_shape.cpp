#include "bench/model_shape.h"

#include <array>

#include "base/check.h"
#include "base/narrow.h"

namespace esm::bench {
namespace {

constexpr int64_t kVector = 8;  // elements that a kernel moves at once

struct Linear {
  const char* name;
  int64_t rows, out, in;
  bool bias, residual, in_layer;
  DType y;
};

std::array<Linear, 6> linears(const ModelShape& s) {
  return {{{"qkv", s.tokens, 3 * s.hidden, s.hidden, true, false, true, s.dtype},
           {"proj", s.tokens, s.hidden, s.hidden, true, true, true, s.dtype},
           {"fc1", s.tokens, s.ffn, s.hidden, true, false, true, s.dtype},
           {"fc2", s.tokens, s.hidden, s.ffn, true, true, true, s.dtype},
           {"head dense", s.head_rows, s.hidden, s.hidden, true, false, false, s.dtype},
           {"decoder", s.head_rows, s.padded_vocabulary, s.hidden, false, false, false, DType::kF32}}};
}

}  // namespace

int64_t ModelShape::layer_parameters() const {
  const int64_t weights = 4 * hidden * hidden + 2 * hidden * ffn, biases = 5 * hidden + ffn, norms = 4 * hidden;
  return round_up<int64_t>(weights + biases + norms, 64);
}

void check(const ModelShape& s) {
  ESM_CHECK(s.heads > 0 && s.layers > 0 && s.tokens > 0 && s.head_rows > 0, "the shape of a model");
  if (s.hidden % s.heads != 0 || s.head_dim() % kVector != 0 || s.ffn % kVector != 0 || s.head_dim() > 256 ||
      s.hidden > 8192)
    fail<ConfigError>(
        "the CUDA kernels take model.hidden up to 8192, and model.hidden / model.heads (up to 256) and the "
        "feed-forward "
        "size in multiples of {}; found hidden {}, heads {}, feed-forward {}",
        kVector, s.hidden, s.heads, s.ffn);
}

std::vector<NamedGemm> model_gemms(const ModelShape& s) {
  std::vector<NamedGemm> result;
  for (const Linear& l : linears(s)) {
    const auto add = [&](const char* role, const device::GemmDesc& desc, bool separate_c) {
      result.push_back({fmt::format("{} {}", l.name, role), desc, separate_c, l.in_layer});
    };
    add("forward",
        device::LinearForwardGemm{.tokens = l.rows,
                                  .out = l.out,
                                  .in = l.in,
                                  .operands = s.dtype,
                                  .y = l.y,
                                  .bias = l.bias,
                                  .residual = l.residual}
            .desc(),
        l.residual);
    add("dgrad",
        device::LinearDgradGemm{.tokens = l.rows, .out = l.out, .in = l.in, .operands = s.dtype, .dx = s.dtype}.desc(),
        false);
    add("wgrad", device::LinearWgradGemm{.tokens = l.rows, .out = l.out, .in = l.in, .operands = s.dtype}.desc(),
        false);
  }
  return result;
}

std::span<const Fp8Mode> fp8_modes() {
  using enum device::GemmScale;
  static constexpr Fp8Mode kModes[] = {
      {"one scale a tensor, fast accumulation", kTensor, kTensor, DType::kF8E5M2, true},
      {"one scale a tensor, split accumulation", kTensor, kTensor, DType::kF8E5M2, false},
      {"one scale a row and column, fast accumulation", kOuterVector, kOuterVector, DType::kF8E5M2, true},
      {"one scale a row and column, split accumulation", kOuterVector, kOuterVector, DType::kF8E5M2, false},
      {"blocks of 128 (weights 128 x 128), split accumulation", kBlock128, kVector128, DType::kF8E4M3, false}};
  return kModes;
}

std::vector<NamedGemm> model_fp8_gemms(const ModelShape& s, const Fp8Mode& mode) {
  const device::Fp8Operand weight{DType::kF8E4M3, mode.weight}, x{DType::kF8E4M3, mode.rest};
  const device::Fp8Operand dy{mode.gradient, mode.rest};
  std::vector<NamedGemm> result;
  for (const Linear& l : linears(s)) {
    if (!l.in_layer) continue;
    const auto add = [&](const char* role, const device::GemmDesc& desc, bool separate_c) {
      result.push_back({fmt::format("{} {}", l.name, role), desc, separate_c});
    };
    add("forward",
        device::Fp8ForwardGemm{.tokens = l.rows,
                               .out = l.out,
                               .in = l.in,
                               .weight = weight,
                               .x = x,
                               .fast_accumulation = mode.fast_accumulation,
                               .bias = l.bias,
                               .residual = l.residual}
            .desc(),
        l.residual);
    add("dgrad",
        device::Fp8DgradGemm{.tokens = l.rows,
                             .out = l.out,
                             .in = l.in,
                             .weight_t = weight,
                             .dy = dy,
                             .fast_accumulation = mode.fast_accumulation}
            .desc(),
        false);
    add("wgrad",
        device::Fp8WgradGemm{.tokens = l.rows,
                             .out = l.out,
                             .in = l.in,
                             .x_t = x,
                             .dy_t = dy,
                             .fast_accumulation = mode.fast_accumulation}
            .desc(),
        false);
  }
  return result;
}

}  // namespace esm::bench
