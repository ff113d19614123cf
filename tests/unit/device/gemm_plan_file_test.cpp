// The text of a product and the file of timed plans; no device needed.
#include "device/gemm_plan_file.h"

#include "base/check.h"
#include "base/files.h"
#include "device/gemm_fp8.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::device;

namespace {

const GemmPlanScope kHere{
    .cublaslt_version = 130100, .device = "NVIDIA H200", .sm_count = 132, .workspace_bytes = 1024};

}  // namespace

TEST_CASE("a linear layer's products in cuBLASLt's column-major view") {
  const LinearForwardGemm forward{.tokens = 7, .out = 5, .in = 3, .bias = true, .residual = true};
  CHECK(text(forward.desc()) == "m=5 n=7 k=3 lda=3 ldb=3 ldd=5 op=TN in=BF16 out=BF16 epilogue=bias beta=1 align=16");
  const LinearDgradGemm dgrad{.tokens = 7, .out = 5, .in = 3};
  CHECK(text(dgrad.desc()) == "m=3 n=7 k=5 lda=3 ldb=5 ldd=3 op=NN in=BF16 out=BF16 epilogue=none beta=0 align=16");
  const LinearWgradGemm wgrad{.tokens = 7, .out = 5, .in = 3};
  CHECK(text(wgrad.desc()) == "m=3 n=5 k=7 lda=3 ldb=5 ldd=3 op=NT in=BF16 out=F32 epilogue=none beta=1 align=16");
  for (const GemmDesc& desc : {forward.desc(), dgrad.desc(), wgrad.desc()}) CHECK_NOTHROW(check(desc));
  CHECK(GemmDescHash{}(forward.desc()) != GemmDescHash{}(dgrad.desc()));
}

TEST_CASE("a product that cannot be is refused") {
  const GemmDesc good = LinearForwardGemm{.tokens = 8, .out = 8, .in = 16}.desc();
  GemmDesc bad = good;
  bad.k = 0;
  CHECK_THROWS_AS(check(bad), InternalError);
  bad = good;
  bad.lda = 8;
  CHECK_THROWS_AS(check(bad), InternalError);
  bad = good;
  bad.a = bad.b = DType::kF32;  // and a BF16 result
  CHECK_THROWS_AS(check(bad), InternalError);
  bad = good;
  bad.alignment_bytes = 12;
  CHECK_THROWS_AS(check(bad), InternalError);
}

TEST_CASE("timed plans survive the file, other scopes stay, damage costs its line only") {
  const ScratchFolder folder("plans");
  const std::string path = folder.path() + "/plans.txt";
  CHECK(read_gemm_plans(path, kHere).empty());

  GemmPlanRecords plans;
  plans["m=1 n=2"] = {.algo = {1, 2, 3, 0xfedcba9876543210ull, 5, 6, 7, ~0ull}, .microseconds = 12.25};
  plans["m=3 n=4"] = {.algo = {9}, .microseconds = 0.5};
  write_gemm_plans(path, kHere, plans);
  GemmPlanScope other = kHere;
  other.sm_count = 1320;  // whose text begins like that of 132
  CHECK(read_gemm_plans(path, other).empty());
  write_gemm_plans(path, other, {{"m=1 n=2", {.algo = {4}, .microseconds = 1}}});

  const GemmPlanRecords back = read_gemm_plans(path, kHere);
  REQUIRE(back.size() == 2);
  CHECK(back.at("m=1 n=2").algo == plans["m=1 n=2"].algo);
  CHECK(back.at("m=1 n=2").microseconds == 12.25);
  CHECK(read_gemm_plans(path, other).at("m=1 n=2").algo == GemmAlgoBytes{4});

  std::string content = read_text_file(path);
  content.replace(content.find("us=12.25"), 8, "us=12,25");
  write_file_atomically(path, content + "nonsense\n" + kHere.text() + "\tm=5");
  int64_t damaged = 0;
  const GemmPlanRecords rest = read_gemm_plans(path, kHere, &damaged);
  CHECK(damaged == 2);  // the line cut off at the end is no line
  CHECK(rest.size() == 1);
  CHECK(rest.count("m=3 n=4") == 1);
}

TEST_CASE("plans that another process found meanwhile stay in the file") {
  const ScratchFolder folder("plans");
  const std::string path = folder.path() + "/plans.txt";
  // Both read the empty file, then each writes all that it knows.
  write_gemm_plans(path, kHere, {{"m=1", {.algo = {1}, .microseconds = 1}}});
  write_gemm_plans(path, kHere, {{"m=2", {.algo = {2}, .microseconds = 2}}});
  write_gemm_plans(path, kHere, {{"m=1", {.algo = {3}, .microseconds = 3}}});
  const GemmPlanRecords plans = read_gemm_plans(path, kHere);
  REQUIRE(plans.size() == 2);
  CHECK(plans.at("m=1").algo == GemmAlgoBytes{3});
  CHECK(plans.at("m=2").algo == GemmAlgoBytes{2});
  CHECK_THROWS_AS(write_gemm_plans(folder.path(), kHere, plans), DataError);
}

TEST_CASE("plans of before FP8 keep their keys; FP8 plans stand beside them") {
  const ScratchFolder folder("plans");
  const std::string path = folder.path() + "/plans.txt";
  // As it was written before products had two operand types and scales.
  const std::string old_line = kHere.text() +
                               "\tm=1280 n=65536 k=5120 lda=5120 ldb=5120 ldd=1280 op=TN in=BF16 out=BF16 "
                               "epilogue=bias beta=1 align=16\tus=1234.50\talgo=" +
                               std::string(127, '0') + "7\n";
  write_file_atomically(path, "# esmtrain GEMM plans 1: found by timing, safe to delete\n" + old_line);
  const GemmDesc old_desc =
      LinearForwardGemm{.tokens = 65536, .out = 1280, .in = 5120, .bias = true, .residual = true}.desc();
  const Fp8ForwardGemm forward{.tokens = 65536, .out = 1280, .in = 5120, .bias = true, .residual = true};
  Fp8ForwardGemm fast = forward;
  fast.fast_accumulation = true;

  int64_t damaged = 0;
  const GemmPlanRecords old_plans = read_gemm_plans(path, kHere, &damaged);
  CHECK(damaged == 0);
  REQUIRE(old_plans.count(text(old_desc)) == 1);
  CHECK(old_plans.at(text(old_desc)).microseconds == 1234.5);
  CHECK(old_plans.count(text(forward.desc())) == 0);

  write_gemm_plans(path, kHere,
                   {{text(forward.desc()), {.algo = {1}, .microseconds = 700}},
                    {text(fast.desc()), {.algo = {2}, .microseconds = 600}}});
  const GemmPlanRecords plans = read_gemm_plans(path, kHere, &damaged);
  CHECK(damaged == 0);
  REQUIRE(plans.size() == 3);
  CHECK(plans.at(text(old_desc)).algo == GemmAlgoBytes{0, 0, 0, 0, 0, 0, 0, 7});
  CHECK(plans.at(text(forward.desc())).algo == GemmAlgoBytes{1});
  CHECK(plans.at(text(fast.desc())).algo == GemmAlgoBytes{2});
  CHECK(read_text_file(path).find(old_line) != std::string::npos);
}
