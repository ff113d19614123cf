// The lines of the log on what a model works in.
#include "precision/describe_plan.h"
#include "support/catch.h"

namespace esm::test {

using namespace precision;

namespace {

/// A model of `plan` with these sizes, as the device sees it, and its head.
std::vector<std::string> lines(const std::vector<Precision>& plan, int64_t hidden, int64_t ffn, int capability) {
  std::vector<PlannedLinear> linears;
  const auto add = [&](int64_t layer, const char* name, Precision precision, int64_t out, int64_t in) {
    linears.push_back({layer, name, precision, resolve(find_recipe(precision), out, in, 8192, capability)});
  };
  for (size_t i = 0; i < plan.size(); ++i) {
    const auto layer = static_cast<int64_t>(i + 1);
    add(layer, "qkv", plan[i], 3 * hidden, hidden);
    add(layer, "out", plan[i], hidden, hidden);
    add(layer, "fc1", plan[i], ffn, hidden);
    add(layer, "fc2", plan[i], hidden, ffn);
  }
  add(0, "head", plan.front() == Precision::kFp32 ? Precision::kFp32 : Precision::kBf16, hidden, hidden);
  return describe_plan(linears);
}

constexpr Precision B = Precision::kBf16, D = Precision::kFp8Delayed, C = Precision::kFp8Current;

}  // namespace

TEST_CASE("layers that work alike share a line") {
  using Lines = std::vector<std::string>;
  CHECK(lines({B, B, B}, 128, 512, 90) == Lines{"layers 1-3: BF16", "head: BF16"});
  CHECK(lines({Precision::kFp32}, 128, 512, 0) == Lines{"layer 1: FP32", "head: FP32"});
  CHECK(lines({B, D, D, C, B}, 128, 512, 90) ==
        Lines{"layers 1, 5: BF16",
              "layers 2-3: qkv, out, fc1, fc2: forward E4M3 (tensor, delayed) x E4M3 (tensor, delayed) to BF16, fast "
              "sums; dgrad E5M2 (tensor, delayed) x E4M3 (tensor, delayed) to BF16, fast sums; wgrad E5M2 (tensor, "
              "delayed) x E4M3 (tensor, delayed) to F32",
              "layer 4: qkv, out, fc1, fc2: forward E4M3 (tensor, current) x E4M3 (tensor, current) to BF16, fast "
              "sums; dgrad E5M2 (tensor, current) x E4M3 (tensor, current) to BF16, fast sums; wgrad E5M2 (tensor, "
              "current) x E4M3 (tensor, current) to F32",
              "head: BF16"});
}

TEST_CASE("what is not as its recipe says has a line with the reason") {
  const std::vector<std::string> sizes = lines({C, C, B}, 128, 520, 90);
  REQUIRE(sizes.size() == 6);
  CHECK_THAT(sizes[0], ContainsSubstring("layers 1-2: qkv, out: forward E4M3"));
  CHECK(sizes[1] == "layers 1-2: fc1, fc2: BF16");
  CHECK(sizes[2] == "layer 3: BF16");
  CHECK(sizes[3] == "head: BF16");
  CHECK(sizes[4] == "layers 1-2: fc1: fp8_current: out = 520 is no multiple of 16: BF16");
  CHECK(sizes[5] == "layers 1-2: fc2: fp8_current: in = 520 is no multiple of 16: BF16");

  const std::vector<std::string> emulated = lines({Precision::kMxfp8, Precision::kMxfp8}, 128, 512, 90);
  REQUIRE(emulated.size() == 3);
  CHECK(emulated[0] ==
        "layers 1-2: qkv, out, fc1, fc2: forward E4M3 (1x32) x E4M3 (1x32) to BF16, emulated; dgrad E4M3 (1x32) x E4M3 "
        "(1x32) to BF16, emulated; wgrad E4M3 (1x32) x E4M3 (1x32) to F32, emulated");
  CHECK(emulated[1] == "head: BF16");
  CHECK(emulated[2] ==
        "layers 1-2: qkv, out, fc1, fc2: mxfp8: compute capability 9.0 has no tensor cores for scales of small groups: "
        "emulated by this program: quantized, dequantized, multiplied in BF16");
}

TEST_CASE("products of small groups on tensor cores are said to be untried, once") {
  const std::vector<std::string> hardware = lines({Precision::kMxfp8, Precision::kNvfp4}, 128, 512, 100);
  REQUIRE(hardware.size() == 4);
  CHECK(hardware[1] ==
        "layer 2: qkv, out, fc1, fc2: forward E2M1 (1x16 and tensor) x E2M1 (1x16 and tensor) to BF16; dgrad E2M1 "
        "(1x16 and tensor) x E2M1 (1x16 and tensor) to BF16; wgrad E2M1 (1x16 and tensor) x E2M1 (1x16 and tensor) to "
        "F32");
  CHECK_THAT(hardware[3], ContainsSubstring("MXFP8 and NVFP4 on tensor cores: not run by us"));
}

TEST_CASE("nothing to tell of a model without linear layers") { CHECK(describe_plan({}).empty()); }

}  // namespace esm::test
