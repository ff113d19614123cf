#include "ops/attention_agreement.h"

#include <cmath>

#include "ops/attention_fp64.h"
#include "support/catch.h"

namespace esm::test {

TEST_CASE("the CPU's attention agrees with FP64 in every instruction set of this machine") {
  const ops::CpuFeatures features = ops::cpu_features();
  REQUIRE((features.avx2 && features.fma));
  const auto results = ops::check_cpu_attention(17);
  CHECK(results.size() == (features.avx512 ? 8 : 4));
  for (const ops::AttentionAgreement& r : results) {
    INFO(r.name << ": out " << r.out << ", gradient " << r.gradient << r.failure);
    CHECK(r.ok());
    CHECK(r.out > 0);  // it is a comparison of two computations
    CHECK(r.gradient > 0);
  }
}

TEST_CASE("the comparison of attention sees a wrong border, a wrong part and NaN") {
  const ops::AttentionProblem problem(2, 16, 3);
  const ops::AttentionSolution want = ops::solve(problem);
  const std::vector<float> out(want.out.begin(), want.out.end()), dqkv(want.dqkv.begin(), want.dqkv.end());
  const auto agrees = [&](const std::vector<float>& o, const std::vector<float>& d, bool bf16) {
    ops::AttentionAgreement agreement;
    ops::compare(problem, want, o, d, bf16, agreement);
    return agreement.ok();
  };
  CHECK(agrees(out, dqkv, false));
  ops::AttentionProblem shifted = problem;
  shifted.cu_seqlens[9] += 1;
  const ops::AttentionSolution wrong = ops::solve(shifted);
  CHECK_FALSE(agrees({wrong.out.begin(), wrong.out.end()}, dqkv, true));
  CHECK_FALSE(agrees(out, {wrong.dqkv.begin(), wrong.dqkv.end()}, true));
  std::vector<float> scaled = dqkv;
  for (size_t i = 32; i < 64; ++i)  // all of dk
    for (size_t row = 0; row < scaled.size(); row += 96) scaled[row + i] *= 1.02f;
  CHECK_FALSE(agrees(out, scaled, true));
  std::vector<float> nan = out;
  nan[5] = std::nanf("");
  CHECK_FALSE(agrees(nan, dqkv, true));
  const ops::AttentionAgreement refused{.name = "x", .refusal = "does not run on sm_75"};
  CHECK(refused.ok());
  CHECK_FALSE(ops::AttentionAgreement{.name = "x", .failure = "an error"}.ok());
}

}  // namespace esm::test
