// Products of linear layers that cuBLASLt is checked with, for test and doctor.
#pragma once
#include <fmt/core.h>

#include <string>
#include <vector>

#include "device/gemm_desc.h"

namespace esm::cases {

/// The C of an accumulating product: another matrix, or D as it was before.
enum class GemmC { kNone, kSeparate, kInPlace };

struct GemmCase {
  std::string name;
  device::GemmDesc desc;
  GemmC c = GemmC::kNone;
  bool may_lack_kernel = false;  // an epilogue that cuBLASLt need not have
};

/// Sizes of models, odd ones, one row; the last one is the longest sum of a step: every token of a batch.
inline std::vector<GemmCase> gemm_cases() {
  using device::GemmDesc, device::GemmEpilogue;
  using device::LinearDgradGemm, device::LinearForwardGemm, device::LinearWgradGemm;
  std::vector<GemmCase> cases;
  const auto add = [&](const std::string& role, const GemmDesc& desc, GemmC c, bool may_lack = false) {
    const char* mode = c == GemmC::kNone ? "" : c == GemmC::kSeparate ? " +C" : " +=";
    const char* epilogue = desc.epilogue == GemmEpilogue::kBias           ? " bias"
                           : desc.epilogue == GemmEpilogue::kBiasGradient ? " dbias"
                                                                          : "";
    cases.push_back({fmt::format("{} {}->{} m{} n{} k{}{}{}", role, dtype_name(desc.a), dtype_name(desc.d),
                                 desc.m, desc.n, desc.k, epilogue, mode),
                     desc, c, may_lack});
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
      wgrad.dbias = true;
      add("wgrad", wgrad.desc(), GemmC::kInPlace, true);
      wgrad.accumulate = false;
      add("wgrad", wgrad.desc(), GemmC::kNone, true);
      wgrad.dbias = false;
      add("wgrad", wgrad.desc(), GemmC::kNone);
      if (in == DType::kBF16) {
        wgrad.dweight = DType::kBF16;
        add("wgrad", wgrad.desc(), GemmC::kNone);
      }
    }
  add("wgrad", LinearWgradGemm{.tokens = 65536, .out = 64, .in = 64}.desc(), GemmC::kInPlace);
  return cases;
}

}  // namespace esm::cases
