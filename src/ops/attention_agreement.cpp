#include "ops/attention_agreement.h"

#include "base/check.h"
#include "base/half.h"
#include "ops/attention_dispatch.h"
#include "ops/attention_fp64.h"
#include "ops/parallel.h"

namespace esm::ops {
namespace {

template <class T>
std::vector<T> from_floats(const std::vector<float>& x) {
  std::vector<T> result;
  for (const float value : x) {
    if constexpr (sizeof(T) == 2)
      result.push_back({bf16_from_float(value)});
    else
      result.push_back(value);
  }
  return result;
}

template <class T>
std::vector<float> to_floats(const std::vector<T>& x) {
  std::vector<float> result;
  for (const T value : x) {
    if constexpr (sizeof(T) == 2)
      result.push_back(float_from_bf16(value.bits));
    else
      result.push_back(value);
  }
  return result;
}

template <class T>
struct Build {
  const char* name;
  void (*forward)(const cpu::Attention<T>&);
  void (*backward)(const cpu::AttentionBackward<T>&);
};

template <class T>
AttentionAgreement check(const Build<T>& build, const AttentionProblem& p, const AttentionSolution& want) {
  AttentionAgreement agreement{
      .name = fmt::format("CPU {} {}, heads of {}", build.name, sizeof(T) == 2 ? "bf16" : "fp32", p.head_dim)};
  const std::vector<T> qkv = from_floats<T>(p.qkv), dout = from_floats<T>(p.dout);
  std::vector<T> out(dout.size()), dqkv(qkv.size());
  std::vector<float> lse(static_cast<size_t>(p.heads * p.tokens()));
  const std::vector<uint8_t> skip(p.cu_seqlens.size());
  const cpu::AttentionShape shape{.heads = p.heads,
                                  .head_dim = p.head_dim,
                                  .scale = static_cast<float>(p.scale()),
                                  .total_rows = p.tokens(),
                                  .segments = static_cast<int64_t>(p.cu_seqlens.size()) - 1,
                                  .cu_seqlens = p.cu_seqlens.data(),
                                  .skip = skip.data(),
                                  .scratch_stride = cpu::attention_scratch(p.max_seqlen, p.head_dim)};
  std::vector<float> scratch(static_cast<size_t>(thread_count() * shape.scratch_stride));
  build.forward({.shape = shape, .qkv = qkv.data(), .out = out.data(), .lse = lse.data(), .scratch = scratch.data()});
  build.backward({.shape = shape,
                  .qkv = qkv.data(),
                  .out = out.data(),
                  .dout = dout.data(),
                  .lse = lse.data(),
                  .dqkv = dqkv.data(),
                  .scratch = scratch.data()});
  compare(p, want, to_floats(out), to_floats(dqkv), sizeof(T) == 2, agreement);
  return agreement;
}

}  // namespace

CpuFeatures cpu_features() {
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .avx512 = __builtin_cpu_supports("avx512f") != 0};
}

std::vector<AttentionAgreement> check_cpu_attention(uint64_t seed) {
  using cpu::Bf16;
  std::vector<AttentionAgreement> results;
  for (const int64_t head_dim : {24, 64}) {
    const AttentionProblem problem(2, head_dim, seed);
    const AttentionSolution want = solve(problem);
    results.push_back(
        check<float>({"AVX2", cpu::attention_avx2<float>, cpu::attention_backward_avx2<float>}, problem, want));
    results.push_back(
        check<Bf16>({"AVX2", cpu::attention_avx2<Bf16>, cpu::attention_backward_avx2<Bf16>}, problem, want));
    if (!cpu_features().avx512) continue;
    results.push_back(
        check<float>({"AVX-512", cpu::attention_avx512<float>, cpu::attention_backward_avx512<float>}, problem, want));
    results.push_back(
        check<Bf16>({"AVX-512", cpu::attention_avx512<Bf16>, cpu::attention_backward_avx512<Bf16>}, problem, want));
  }
  return results;
}

}  // namespace esm::ops
