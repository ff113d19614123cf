// What a linear layer really works in, by device and sizes.
#include "precision/linear_formats.h"

#include <fmt/core.h>

#include "base/error.h"
#include "precision/fp8_operand.h"
#include "support/catch.h"

namespace esm::test {

using namespace precision;

namespace {

constexpr int kHopper = 90;
constexpr Precision kFp8[] = {Precision::kFp8Delayed, Precision::kFp8Current, Precision::kFp8Block,
                              Precision::kFp8Outer};
constexpr Precision kSmallGroups[] = {Precision::kMxfp8, Precision::kNvfp4};

LinearFormats resolved(Precision precision, int64_t out, int64_t in, int64_t tokens, int capability) {
  return resolve(find_recipe(precision), out, in, tokens, capability);
}

/// As the recipe has it.
void check_formats(const LinearFormats& formats, const Recipe& recipe) {
  CHECK(formats.x == recipe.forward.a);
  CHECK(formats.weight == recipe.forward.b);
  CHECK(formats.dy == recipe.wgrad.a);
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad})
    CHECK(formats.gemm(role) == recipe.gemm(role));
}

void check_bf16(const LinearFormats& formats, const std::string& why) {
  CHECK(formats.path == Path::kPlain);
  CHECK_FALSE(formats.quantized());
  CHECK(formats.why == why);
  check_formats(formats, find_recipe(Precision::kBf16));
}

std::string device_error(Precision precision, int capability) {
  try {
    resolved(precision, 1280, 1280, 8192, capability);
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("recipes that quantize nothing are plain on every device, whatever the sizes") {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    for (const int capability : {0, 80, kHopper}) {
      const LinearFormats formats = resolved(precision, 33, 7, 5, capability);
      CHECK(formats.path == Path::kPlain);
      CHECK(formats.why.empty());
      check_formats(formats, find_recipe(precision));
    }
}

TEST_CASE("the CPU emulates every quantized recipe, whatever the sizes") {
  for (const Recipe& recipe : recipes()) {
    if (!recipe.quantized()) continue;
    const LinearFormats formats = resolve(recipe, 33, 7, 5, 0);
    CHECK(formats.path == Path::kEmulated);
    CHECK_THAT(formats.why, ContainsSubstring("emulated on the CPU"));
    check_formats(formats, recipe);
  }
}

TEST_CASE("Hopper multiplies the FP8 recipes itself, and emulates MXFP8 and NVFP4") {
  for (const Precision precision : kFp8) {
    const LinearFormats formats = resolved(precision, 5120, 1280, 65536, kHopper);
    CHECK(formats.path == Path::kHardware);
    CHECK(formats.quantized());
    CHECK(formats.why.empty());
    check_formats(formats, find_recipe(precision));
  }
  for (const Precision precision : kSmallGroups)
    for (const int capability : {80, kHopper}) {
      const LinearFormats formats = resolved(precision, 5120, 1280, 65536, capability);
      CHECK(formats.path == Path::kEmulated);
      CHECK(formats.why ==
            fmt::format("compute capability {}.0 has no tensor cores for scales of small groups: emulated by this "
                        "program: quantized, dequantized, multiplied in BF16",
                        capability / 10));
      check_formats(formats, find_recipe(precision));
    }
}

TEST_CASE("Blackwell multiplies MXFP8 and NVFP4 itself, but for sizes that are no multiples of 32") {
  for (const Precision precision : kSmallGroups)
    for (const int capability : {100, 103, 120}) {
      const LinearFormats formats = resolved(precision, 5120, 1280, 65536, capability);
      CHECK(formats.path == Path::kHardware);
      CHECK(formats.why.empty());
      check_formats(formats, find_recipe(precision));
      const LinearFormats odd = resolved(precision, 1280, 48, 8192, capability);
      CHECK(odd.path == Path::kEmulated);
      CHECK(odd.why ==
            "in = 48 is no multiple of 32: emulated by this program: quantized, dequantized, multiplied in "
            "BF16");
      check_bf16(resolved(precision, 1280, 40, 8192, capability), "in = 40 is no multiple of 16: BF16");
    }
}

TEST_CASE("what a layer asks of cuBLASLt") {
  const std::vector<device::GemmDesc> mx = products_of(resolved(Precision::kMxfp8, 96, 64, 128, 100), 96, 64, 128);
  const std::vector<std::string> texts = {
      "m=96 n=128 k=64 lda=64 ldb=64 ldd=96 op=TN in=F8_E4M3/F8_E4M3 out=BF16 epilogue=bias beta=0",
      "m=96 n=128 k=64 lda=64 ldb=64 ldd=96 op=TN in=F8_E4M3/F8_E4M3 out=BF16 epilogue=bias beta=1",
      "m=64 n=128 k=96 lda=96 ldb=96 ldd=64 op=TN in=F8_E4M3/F8_E4M3 out=BF16 epilogue=none beta=0",
      "m=64 n=96 k=128 lda=128 ldb=128 ldd=64 op=TN in=F8_E4M3/F8_E4M3 out=F32 epilogue=none beta=0",
      "m=64 n=96 k=128 lda=128 ldb=128 ldd=64 op=TN in=F8_E4M3/F8_E4M3 out=F32 epilogue=none beta=1"};
  REQUIRE(mx.size() == texts.size());
  for (size_t i = 0; i < mx.size(); ++i) CHECK(text(mx[i]) == texts[i] + " align=16 scale=mx32/mx32 sums=split");
  for (const Precision precision : {Precision::kFp8Delayed, Precision::kFp8Block, Precision::kMxfp8, Precision::kNvfp4})
    for (const device::GemmDesc& product :
         products_of(resolved(precision, 256, 128, 384, precision == Precision::kFp8Block ? 90 : 100), 256, 128, 384)) {
      CHECK_NOTHROW(device::check(product));
      CHECK((product.a == DType::kF4E2M1x2) == (precision == Precision::kNvfp4));
      CHECK(product.device_factors == (precision == Precision::kNvfp4));
    }
}

TEST_CASE("formats that the device turns out to lack are emulated, with the reason") {
  const LinearFormats formats = resolved(Precision::kNvfp4, 1280, 1280, 8192, 120);
  const LinearFormats instead = emulated_instead(formats, "cuBLASLt has no kernel for it");
  CHECK(instead.path == Path::kEmulated);
  CHECK(instead.why ==
        "cuBLASLt has no kernel for it: emulated by this program: quantized, dequantized, multiplied in "
        "BF16");
  check_formats(instead, find_recipe(Precision::kNvfp4));
}

TEST_CASE("one scale a tensor needs 8.9, the other FP8 recipes 9.0 exactly, and the error says what to use") {
  for (const Precision precision : {Precision::kFp8Delayed, Precision::kFp8Current}) {
    for (const int capability : {89, 90, 100, 120}) CHECK(device_error(precision, capability).empty());
    CHECK_THAT(device_error(precision, 80),
               ContainsSubstring("compute capability 8.0 has no FP8 tensor cores; use bf16"));
  }
  for (const Precision precision : {Precision::kFp8Block, Precision::kFp8Outer}) {
    CHECK(device_error(precision, 90).empty());
    CHECK_THAT(device_error(precision, 86), ContainsSubstring("8.6 has no FP8 tensor cores; use bf16"));
    for (const int capability : {89, 100})
      CHECK_THAT(device_error(precision, capability),
                 ContainsSubstring("takes one scale a tensor only; use fp8_current, fp8_delayed or bf16"));
  }
  CHECK(device_error(Precision::kFp8Block, 100) ==
        "precision fp8_block needs another device: compute capability 10.0 takes one scale a tensor only; use "
        "fp8_current, fp8_delayed or bf16");
  // A device that lacks it is an error for layers of any size: other layers of the model would fail.
  CHECK_THROWS_AS(resolved(Precision::kFp8Current, 33, 33, 128, 80), DeviceError);
}

TEST_CASE("sizes that FP8 products cannot take are BF16") {
  for (const Precision precision :
       {Precision::kFp8Delayed, Precision::kFp8Current, Precision::kFp8Outer, Precision::kMxfp8, Precision::kNvfp4}) {
    check_bf16(resolved(precision, 1280, 33, 8192, kHopper), "in = 33 is no multiple of 16: BF16");
    check_bf16(resolved(precision, 33, 1280, 8192, kHopper), "out = 33 is no multiple of 16: BF16");
    check_bf16(resolved(precision, 1280, 1280, 8200, kHopper), "tokens = 8200 is no multiple of 16: BF16");
    CHECK(resolved(precision, 16, 48, 80, kHopper).quantized());
  }
}

TEST_CASE("scales in blocks want multiples of 128 of every k") {
  const auto of = [](int64_t out, int64_t in, int64_t tokens) {
    return resolved(Precision::kFp8Block, out, in, tokens, kHopper);
  };
  check_bf16(of(960, 320, 8192), "in = 320 is no multiple of 128: BF16");  // ESM-2 8M
  check_bf16(of(960, 384, 8192), "out = 960 is no multiple of 128: BF16");
  check_bf16(of(1920, 640, 8208), "tokens = 8208 is no multiple of 128: BF16");
  CHECK(of(128, 384, 256).path == Path::kHardware);
}

}  // namespace esm::test
