// A small packed attention problem and its solution in FP64 on the host, for attention_agreement.h.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention_agreement.h"

namespace esm::ops {

/// Random values that BF16 holds exactly. qkv [T, 3, H, K], dout [T, H, K]; formulas of attention.h.
struct AttentionProblem {
  AttentionProblem(int64_t heads, int64_t head_dim, uint64_t seed);

  int64_t tokens() const { return cu_seqlens.back(); }
  int64_t hidden() const { return heads * head_dim; }
  double scale() const;

  int64_t heads, head_dim;
  int64_t max_seqlen = 0;
  std::vector<int32_t> cu_seqlens;  // lengths of 1 to 143, around multiples of 16 and 64
  std::vector<float> qkv, dout;
};

struct AttentionSolution {
  std::vector<double> out, dqkv;
};
AttentionSolution solve(const AttentionProblem& problem);

/// Sets the distances and bounds of `agreement`; bf16: the type that out and dqkv were rounded to.
void compare(const AttentionProblem& problem, const AttentionSolution& want, std::span<const float> out,
             std::span<const float> dqkv, bool bf16, AttentionAgreement& agreement);

}  // namespace esm::ops
