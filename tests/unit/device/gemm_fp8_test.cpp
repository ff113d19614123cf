// FP8 products: their texts, what they cannot take, where scales lie; no device needed.
#include "device/gemm_fp8.h"

#include <set>

#include "base/error.h"
#include "support/catch.h"

namespace esm::device {
namespace {

constexpr Fp8Operand kE5M2{.dtype = DType::kF8E5M2};

GemmDesc good() { return Fp8WgradGemm{.tokens = 256, .out = 64, .in = 32, .dy_t = kE5M2}.desc(); }

constexpr Fp8Operand kMx{.scale = GemmScale::kMx32}, kNv{.dtype = DType::kF4E2M1x2, .scale = GemmScale::kNv16};

/// A weight gradient with scales of small groups.
GemmDesc grouped(const Fp8Operand& operand) {
  return Fp8WgradGemm{.tokens = 256, .out = 64, .in = 32, .x_t = operand, .dy_t = operand}.desc();
}

GemmDesc scaled(GemmScale a, GemmScale b) {
  GemmDesc g = good();
  g.scale_a = a;
  g.scale_b = b;
  return g;
}

}  // namespace

TEST_CASE("the products of a linear layer in FP8 read k-contiguous copies") {
  const Fp8ForwardGemm forward{
      .tokens = 128, .out = 48, .in = 32, .fast_accumulation = true, .bias = true, .residual = true};
  CHECK(text(forward.desc()) ==
        "m=48 n=128 k=32 lda=32 ldb=32 ldd=48 op=TN in=F8_E4M3/F8_E4M3 out=BF16 epilogue=bias beta=1 align=16 "
        "scale=tensor/tensor sums=fast");
  const Fp8DgradGemm dgrad{.tokens = 128,
                           .out = 48,
                           .in = 32,
                           .weight_t = {.scale = GemmScale::kOuterVector},
                           .dy = {.dtype = DType::kF8E5M2, .scale = GemmScale::kOuterVector}};
  CHECK(text(dgrad.desc()) ==
        "m=32 n=128 k=48 lda=48 ldb=48 ldd=32 op=TN in=F8_E4M3/F8_E5M2 out=BF16 epilogue=none beta=0 align=16 "
        "scale=outer/outer sums=split");
  const Fp8WgradGemm wgrad{.tokens = 128,
                           .out = 48,
                           .in = 32,
                           .x_t = {.scale = GemmScale::kBlock128},
                           .dy_t = {.scale = GemmScale::kVector128}};
  CHECK(text(wgrad.desc()) ==
        "m=32 n=48 k=128 lda=128 ldb=128 ldd=32 op=TN in=F8_E4M3/F8_E4M3 out=F32 epilogue=none beta=1 align=16 "
        "scale=block128/vector128 sums=split");
  for (const GemmDesc& desc : {forward.desc(), dgrad.desc(), wgrad.desc()}) CHECK_NOTHROW(check(desc));
  CHECK(forward.desc().bias_type() == DType::kBF16);
  GemmDesc wide = forward.desc();
  wide.d = DType::kF32;
  CHECK(wide.bias_type() == DType::kBF16);
  CHECK(
      LinearForwardGemm{.tokens = 1, .out = 1, .in = 1, .operands = DType::kF32, .y = DType::kF32}.desc().bias_type() ==
      DType::kF32);
}

TEST_CASE("MXFP8 and NVFP4 read the same copies, NVFP4 with the scale of its tensors on the device") {
  const auto check_all = [](const Fp8Operand& o, const std::string& in, const std::string& end) {
    const Fp8ForwardGemm forward{
        .tokens = 128, .out = 96, .in = 32, .weight = o, .x = o, .bias = true, .residual = true};
    const Fp8DgradGemm dgrad{.tokens = 128, .out = 96, .in = 32, .weight_t = o, .dy = o};
    const Fp8WgradGemm wgrad{.tokens = 128, .out = 96, .in = 32, .x_t = o, .dy_t = o};
    CHECK(text(forward.desc()) == "m=96 n=128 k=32 lda=32 ldb=32 ldd=96 op=TN in=" + in +
                                      " out=BF16 epilogue=bias beta=1 align=16 scale=" + end);
    CHECK(text(dgrad.desc()) == "m=32 n=128 k=96 lda=96 ldb=96 ldd=32 op=TN in=" + in +
                                    " out=BF16 epilogue=none beta=0 align=16 scale=" + end);
    CHECK(text(wgrad.desc()) == "m=32 n=96 k=128 lda=128 ldb=128 ldd=32 op=TN in=" + in +
                                    " out=F32 epilogue=none beta=1 align=16 scale=" + end);
    for (const GemmDesc& desc : {forward.desc(), dgrad.desc(), wgrad.desc()}) {
      CHECK_NOTHROW(check(desc));
      CHECK(desc.bias_type() == DType::kBF16);
      CHECK(desc.device_factors == (o.scale == GemmScale::kNv16));
    }
  };
  check_all(kMx, "F8_E4M3/F8_E4M3", "mx32/mx32 sums=split");
  check_all(kNv, "F4_E2M1/F4_E2M1", "nv16/nv16 sums=split factors=device");
  CHECK(operand_bytes(DType::kF4E2M1x2, 96 * 32) == 96 * 16);
  CHECK(operand_bytes(DType::kF8E4M3, 96 * 32) == 96 * 32);
  CHECK(operand_bytes(DType::kBF16, 96) == 192);
}

TEST_CASE("each property of an FP8 product is in its text") {
  std::set<std::string> texts;
  std::set<size_t> hashes;
  const auto add = [&](auto change) {
    GemmDesc g = good();
    change(g);
    texts.insert(text(g));
    hashes.insert(GemmDescHash{}(g));
  };
  add([](GemmDesc&) {});
  add([](GemmDesc& g) { g.fast_accumulation = true; });
  add([](GemmDesc& g) { g.b = DType::kF8E4M3; });
  add([](GemmDesc& g) { std::swap(g.a, g.b); });
  add([](GemmDesc& g) { g.scale_a = g.scale_b = GemmScale::kOuterVector; });
  add([](GemmDesc& g) { g.scale_a = g.scale_b = GemmScale::kVector128; });
  add([](GemmDesc& g) { g.scale_a = GemmScale::kVector128, g.scale_b = GemmScale::kBlock128; });
  add([](GemmDesc& g) { g.scale_a = GemmScale::kBlock128, g.scale_b = GemmScale::kVector128; });
  add([](GemmDesc& g) { g.d = DType::kBF16; });
  add([](GemmDesc& g) { g.device_factors = true; });
  add([](GemmDesc& g) { g = grouped(kMx); });
  add([](GemmDesc& g) { g = grouped(kNv); });
  CHECK(texts.size() == 12);
  CHECK(hashes.size() == 12);
}

TEST_CASE("what FP8 products cannot take is said") {
  CHECK(fp8_obstacle(good()).empty());
  CHECK(fp8_obstacle(LinearDgradGemm{.tokens = 3, .out = 5, .in = 7}.desc()).empty());  // no FP8
  struct Bad {
    const char* why;
    void (*change)(GemmDesc&);
  };
  for (const Bad& bad : {
           Bad{"k = 33 is no multiple of 16", [](GemmDesc& g) { g.k = 33; }},
           {"lda = 264 is no multiple of 16", [](GemmDesc& g) { g.lda = 264; }},
           {"ldb = 257 is no multiple of 16", [](GemmDesc& g) { g.ldb = 257; }},
           {"ldd = 33", [](GemmDesc& g) { g.ldd = 33; }},
           {"E5M2 times E5M2", [](GemmDesc& g) { g.a = DType::kF8E5M2; }},
           {"the other one not", [](GemmDesc& g) { g.a = DType::kBF16; }},
           {"k is not contiguous", [](GemmDesc& g) { g.transpose_a = false; }},
           {"k is not contiguous", [](GemmDesc& g) { g.transpose_b = true; }},
           {"BF16 or FP32", [](GemmDesc& g) { g.d = DType::kF8E4M3; }},
           {"less than 16 bytes", [](GemmDesc& g) { g.alignment_bytes = 8; }},
           {"without a scale", [](GemmDesc& g) { g.scale_b = GemmScale::kNone; }},
           {"with the same on the other side", [](GemmDesc& g) { g.scale_b = GemmScale::kMx32; }},
           {"with the same on the other side", [](GemmDesc& g) { g = grouped(kMx), g.scale_a = GemmScale::kNv16; }},
           {"scales of mx32 are for F8_E4M3", [](GemmDesc& g) { g.scale_a = g.scale_b = GemmScale::kMx32; }},
           {"scales of nv16 are for F4_E2M1", [](GemmDesc& g) { g = grouped(kNv), g.b = DType::kF8E4M3; }},
           {"k = 48 is no multiple of 32", [](GemmDesc& g) { g = grouped(kMx), g.k = 48; }},
           {"lda = 272 is no multiple of 32", [](GemmDesc& g) { g = grouped(kNv), g.lda = 272; }},
           {"no fast accumulation", [](GemmDesc& g) { g = grouped(kMx), g.fast_accumulation = true; }},
           {"without the scale of its tensors", [](GemmDesc& g) { g = grouped(kNv), g.device_factors = false; }},
           {"FP4 without scales of 16", [](GemmDesc& g) { g.a = DType::kF4E2M1x2; }},
           {"k is not contiguous", [](GemmDesc& g) { g = grouped(kNv), g.transpose_b = true; }},
           {"one a tensor with another", [](GemmDesc& g) { g.scale_b = GemmScale::kOuterVector; }},
           {"with such scales only", [](GemmDesc& g) { g.scale_b = GemmScale::kVector128; }},
           {"on both sides", [](GemmDesc& g) { g.scale_a = g.scale_b = GemmScale::kBlock128; }},
           {"k = 144 is no multiple of 128",
            [](GemmDesc& g) {
              g.scale_a = g.scale_b = GemmScale::kVector128;
              g.k = 144;
            }},
           {"n = 62 is no multiple of 4",
            [](GemmDesc& g) {
              g.scale_a = g.scale_b = GemmScale::kVector128;
              g.n = 62;
            }},
           {"no fast accumulation",
            [](GemmDesc& g) {
              g.scale_a = g.scale_b = GemmScale::kVector128;
              g.fast_accumulation = true;
            }},
       }) {
    GemmDesc g = good();
    bad.change(g);
    INFO(bad.why);
    CHECK_THAT(fp8_obstacle(g), ContainsSubstring(bad.why));
    CHECK_THROWS_AS(check(g), InternalError);
    CHECK_THROWS_WITH(check(g), ContainsSubstring(bad.why));
  }
  for (const auto& [a, b] :
       {std::pair{GemmScale::kOuterVector, GemmScale::kOuterVector},
        std::pair{GemmScale::kVector128, GemmScale::kVector128}, std::pair{GemmScale::kVector128, GemmScale::kBlock128},
        std::pair{GemmScale::kBlock128, GemmScale::kVector128}})
    CHECK(fp8_obstacle(scaled(a, b)).empty());
  for (const Fp8Operand& operand : {kMx, kNv}) CHECK(fp8_obstacle(grouped(operand)).empty());
  GemmDesc plain = LinearForwardGemm{.tokens = 16, .out = 16, .in = 16}.desc();
  plain.fast_accumulation = true;
  CHECK_THROWS_AS(check(plain), InternalError);
  plain.fast_accumulation = false;
  plain.scale_a = GemmScale::kTensor;
  CHECK_THROWS_AS(check(plain), InternalError);
}

TEST_CASE("scales lie as cuBLAS wants them") {
  constexpr int64_t kRows = 260, kK = 640;
  CHECK(scale_count(GemmScale::kNone, kRows, kK) == 0);
  CHECK(scale_count(GemmScale::kTensor, kRows, kK) == 1);
  CHECK(scale_count(GemmScale::kOuterVector, kRows, kK) == 260);
  CHECK(scale_count(GemmScale::kVector128, kRows, kK) == 5 * 260);
  CHECK(scale_count(GemmScale::kBlock128, kRows, kK) == 3 * 8);  // 5 blocks of k in 8 places
  CHECK(scale_index(GemmScale::kTensor, kRows, kK, 7, 8) == 0);
  CHECK(scale_index(GemmScale::kOuterVector, kRows, kK, 7, 600) == 7);
  CHECK(scale_index(GemmScale::kVector128, kRows, kK, 7, 127) == 7);
  CHECK(scale_index(GemmScale::kVector128, kRows, kK, 7, 128) == 267);
  CHECK(scale_index(GemmScale::kBlock128, kRows, kK, 127, 639) == 4);
  CHECK(scale_index(GemmScale::kBlock128, kRows, kK, 128, 0) == 8);
  for (const GemmScale scale :
       {GemmScale::kTensor, GemmScale::kOuterVector, GemmScale::kVector128, GemmScale::kBlock128})
    CHECK(scale_index(scale, kRows, kK, kRows - 1, kK - 1) < scale_count(scale, kRows, kK));
  CHECK(scale_count(GemmScale::kMx32, kRows, kK) == 3 * 5 * 512);   // 20 groups
  CHECK(scale_count(GemmScale::kNv16, kRows, kK) == 3 * 10 * 512);  // 40 groups
  CHECK(scale_index(GemmScale::kMx32, kRows, kK, 33, 31) == 16 + 4);
  CHECK(scale_index(GemmScale::kMx32, kRows, kK, 128, 4 * 32) == 5 * 512 + 512);
  CHECK(scale_index(GemmScale::kNv16, kRows, kK, 33, 31) == 16 + 4 + 1);
  CHECK(scale_index(GemmScale::kNv16, kRows, kK, 128, 4 * 16) == 10 * 512 + 512);
}

TEST_CASE("scales of small groups need Blackwell, those of blocks Hopper") {
  for (const Fp8Operand& operand : {kMx, kNv}) {
    for (const int capability : {100, 103, 110, 120, 121})
      CHECK(fp8_device_obstacle(grouped(operand), capability).empty());
    CHECK(fp8_device_obstacle(grouped(operand), 90) ==
          "compute capability 9.0 has no tensor cores for scales of small groups");
    CHECK_FALSE(fp8_device_obstacle(grouped(operand), 80).empty());
  }
  const GemmDesc blocks = scaled(GemmScale::kVector128, GemmScale::kVector128);
  CHECK(fp8_device_obstacle(blocks, 90).empty());
  CHECK_FALSE(fp8_device_obstacle(blocks, 100).empty());
}

}  // namespace esm::device
