// Packed attention in FP64 on the device, one block a row, no online softmax: the oracle of the backends.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace esm::test {

/// Each value with the magnitude that rounding errors scale with: the sum of the absolute terms, where a term that went
/// through a rounded intermediate (softmax weights, dS, delta) counts with the size of that intermediate.
struct AttentionReference {
  std::vector<double> out, out_magnitude;    // [T, H, K]
  std::vector<double> lse;                   // [T, H]
  std::vector<double> dqkv, dqkv_magnitude;  // [T, 3, H, K]
};

struct AttentionReferenceArgs {
  DType dtype = DType::kBF16;
  const void* qkv = nullptr;   // device, [T, 3, H, K]
  const void* dout = nullptr;  // device, [T, H, K]
  std::vector<int32_t> cu_seqlens;
  int64_t heads = 0, head_dim = 0;
};
/// Waits for the device. Sequences of up to 9,000 rows.
AttentionReference attention_reference(const AttentionReferenceArgs& args);

}  // namespace esm::test
