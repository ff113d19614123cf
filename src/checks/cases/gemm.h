// Products of linear layers that cuBLASLt is checked with, for test and doctor.
#pragma once
#include <fmt/core.h>

#include <string>
#include <vector>

#include "device/gemm_fp8.h"

namespace esm::cases {

/// The C of an accumulating product: another matrix, or D as it was before.
enum class GemmC { kNone, kSeparate, kInPlace };

struct GemmCase {
  std::string name;
  device::GemmDesc desc;
  GemmC c = GemmC::kNone;
  bool may_lack_kernel = false;  // an epilogue that cuBLASLt need not have
};

inline GemmCase gemm_case(const std::string& role, const device::GemmDesc& desc, GemmC c, bool may_lack) {
  using device::GemmEpilogue;
  const char* mode = c == GemmC::kNone ? "" : c == GemmC::kSeparate ? " +C" : " +=";
  const char* epilogue = desc.epilogue == GemmEpilogue::kBias ? " bias" : "";
  std::string in(dtype_name(desc.a)), fp8;
  if (desc.in_codes()) {
    in += fmt::format("*{}", dtype_name(desc.b));
    fp8 = fmt::format(" {}*{} {}", scale_name(desc.scale_a), scale_name(desc.scale_b),
                      desc.fast_accumulation ? "fast" : "split");
  }
  if (desc.device_factors) fp8 += " alpha on the device";
  return {fmt::format("{} {}->{} m{} n{} k{}{}{}{}", role, in, dtype_name(desc.d), desc.m, desc.n, desc.k, epilogue,
                      mode, fp8),
          desc, c, may_lack};
}

/// FP32 and BF16. Sizes of models, odd ones, one row; the last one is the longest sum of a step: every token of a
/// batch.
inline std::vector<GemmCase> gemm_cases() {
  using device::GemmDesc, device::LinearDgradGemm, device::LinearForwardGemm, device::LinearWgradGemm;
  std::vector<GemmCase> cases;
  const auto add = [&](const std::string& role, const GemmDesc& desc, GemmC c) {
    cases.push_back(gemm_case(role, desc, c, /*may_lack=*/false));
  };
  struct Size {
    int64_t tokens, out, in;
  };
  const std::vector<Size> sizes = {{128, 960, 320}, {256, 64, 320}, {257, 320, 480}, {1000, 64, 72}, {96, 33, 40},
                                   {384, 480, 200}, {7, 64, 24},    {1, 64, 64},     {129, 37, 35}};
  for (const DType in : {DType::kBF16, DType::kF32})
    for (const Size& s : sizes) {
      const LinearForwardGemm forward{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in, .y = in};
      LinearForwardGemm biased = forward, residual = forward;
      biased.bias = true;
      residual.bias = residual.residual = true;
      add("forward", forward.desc(), GemmC::kNone);
      add("forward", biased.desc(), GemmC::kNone);
      add("forward", residual.desc(), GemmC::kSeparate);
      add("forward", residual.desc(), GemmC::kInPlace);
      LinearForwardGemm wide = biased;
      wide.y = DType::kF32;
      if (in == DType::kBF16) add("forward", wide.desc(), GemmC::kNone);
      const LinearDgradGemm dgrad{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in, .dx = in};
      add("dgrad", dgrad.desc(), GemmC::kNone);
      LinearWgradGemm wgrad{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in};
      add("wgrad", wgrad.desc(), GemmC::kInPlace);
      wgrad.accumulate = false;
      add("wgrad", wgrad.desc(), GemmC::kNone);
      if (in == DType::kBF16) {
        wgrad.dweight = DType::kBF16;
        add("wgrad", wgrad.desc(), GemmC::kNone);
      }
    }
  add("wgrad", LinearWgradGemm{.tokens = 65536, .out = 64, .in = 64}.desc(), GemmC::kInPlace);
  // As FP4 has it, here where every device has a kernel.
  for (const bool residual : {false, true}) {
    GemmDesc scaled = LinearForwardGemm{.tokens = 256, .out = 64, .in = 320, .bias = true, .residual = residual}.desc();
    scaled.device_factors = true;
    add("forward", scaled, residual ? GemmC::kSeparate : GemmC::kNone);
  }
  return cases;
}

/// MXFP8 and NVFP4 as a linear layer asks for them; none before Blackwell.
inline void add_small_group_cases(std::vector<GemmCase>& cases) {
  for (const device::Fp8Operand& operand : {device::Fp8Operand{.scale = device::GemmScale::kMx32},
                                            {.dtype = DType::kF4E2M1x2, .scale = device::GemmScale::kNv16}}) {
    const auto add = [&](const std::string& role, const device::GemmDesc& desc, GemmC c) {
      cases.push_back(gemm_case(role, desc, c, /*may_lack=*/false));
    };
    for (const int64_t tokens : {128, 1120}) {
      device::Fp8ForwardGemm forward{
          .tokens = tokens, .out = 320, .in = 480, .weight = operand, .x = operand, .bias = true};
      add("forward", forward.desc(), GemmC::kNone);
      forward.residual = true;
      add("forward", forward.desc(), GemmC::kSeparate);
      add("dgrad",
          device::Fp8DgradGemm{.tokens = tokens, .out = 320, .in = 480, .weight_t = operand, .dy = operand}.desc(),
          GemmC::kNone);
      device::Fp8WgradGemm wgrad{.tokens = tokens, .out = 320, .in = 480, .x_t = operand, .dy_t = operand};
      add("wgrad", wgrad.desc(), GemmC::kInPlace);
      wgrad.accumulate = false;
      add("wgrad", wgrad.desc(), GemmC::kNone);
    }
  }
}

/// FP8: the three roles in every mode of scales, with fast accumulation where there is one, and the longest sums; then
/// those of small groups.
inline std::vector<GemmCase> fp8_gemm_cases() {
  using device::Fp8DgradGemm, device::Fp8ForwardGemm, device::Fp8Operand, device::Fp8WgradGemm;
  using device::GemmDesc, device::GemmScale;
  std::vector<GemmCase> cases;
  const auto add = [&](const std::string& role, const GemmDesc& desc, GemmC c, bool may_lack = false) {
    cases.push_back(gemm_case(role, desc, c, may_lack));
  };
  struct Mode {
    GemmScale weight, rest;  // of the weight, of activations and gradients; in wgrad of dY, of X
    bool fast;
  };
  struct Size {
    int64_t tokens, out, in;
  };
  for (const Mode& mode : {Mode{GemmScale::kTensor, GemmScale::kTensor, false},
                           {GemmScale::kTensor, GemmScale::kTensor, true},
                           {GemmScale::kOuterVector, GemmScale::kOuterVector, false},
                           {GemmScale::kOuterVector, GemmScale::kOuterVector, true},
                           {GemmScale::kVector128, GemmScale::kVector128, false},
                           {GemmScale::kBlock128, GemmScale::kVector128, false}}) {
    const bool blocks = mode.rest == GemmScale::kVector128;
    const std::vector<Size> sizes = blocks ? std::vector<Size>{{128, 256, 384}, {256, 384, 128}, {384, 128, 256}}
                                           : std::vector<Size>{{128, 320, 480}, {272, 160, 320}, {1008, 64, 96}};
    const auto e4m3 = [&](GemmScale scale) { return Fp8Operand{DType::kF8E4M3, scale}; };
    for (const Size& s : sizes) {
      Fp8ForwardGemm forward{.tokens = s.tokens,
                             .out = s.out,
                             .in = s.in,
                             .weight = e4m3(mode.weight),
                             .x = e4m3(mode.rest),
                             .fast_accumulation = mode.fast};
      add("forward", forward.desc(), GemmC::kNone);
      forward.bias = true;
      add("forward", forward.desc(), GemmC::kNone, blocks);
      forward.residual = true;
      add("forward", forward.desc(), GemmC::kSeparate, blocks);
      add("forward", forward.desc(), GemmC::kInPlace, blocks);
      forward.residual = false;
      forward.y = DType::kF32;
      add("forward", forward.desc(), GemmC::kNone, true);
      for (const DType dy : {DType::kF8E5M2, DType::kF8E4M3}) {
        const Fp8DgradGemm dgrad{.tokens = s.tokens,
                                 .out = s.out,
                                 .in = s.in,
                                 .weight_t = e4m3(mode.weight),
                                 .dy = {dy, mode.rest},
                                 .fast_accumulation = mode.fast};
        add("dgrad", dgrad.desc(), GemmC::kNone);
        Fp8WgradGemm wgrad{.tokens = s.tokens,
                           .out = s.out,
                           .in = s.in,
                           .x_t = e4m3(mode.rest),
                           .dy_t = {dy, mode.weight},
                           .fast_accumulation = mode.fast};
        add("wgrad", wgrad.desc(), GemmC::kInPlace);
        wgrad.accumulate = false;
        add("wgrad", wgrad.desc(), GemmC::kNone);
        wgrad.dweight = DType::kBF16;
        add("wgrad", wgrad.desc(), GemmC::kNone);
      }
    }
    // E5M2 first, rows that are no multiple of 16, and every token of a batch.
    const Fp8WgradGemm swapped{.tokens = 128,
                               .out = 64,
                               .in = 96,
                               .x_t = {DType::kF8E5M2, mode.rest},
                               .dy_t = e4m3(mode.weight),
                               .fast_accumulation = mode.fast};
    add("wgrad", swapped.desc(), GemmC::kInPlace);
    const Fp8ForwardGemm odd{.tokens = 100,
                             .out = 64,
                             .in = 128,
                             .weight = e4m3(mode.weight),
                             .x = e4m3(mode.rest),
                             .fast_accumulation = mode.fast};
    add("forward", odd.desc(), GemmC::kNone, true);
    const Fp8WgradGemm longest{.tokens = 65536,
                               .out = 64,
                               .in = 64,
                               .x_t = e4m3(mode.rest),
                               .dy_t = {DType::kF8E5M2, mode.weight},
                               .fast_accumulation = mode.fast};
    add("wgrad", longest.desc(), GemmC::kInPlace);
  }
  add_small_group_cases(cases);
  return cases;
}

}  // namespace esm::cases
