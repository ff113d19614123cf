// Second stage of column sums: partial sums of blocks, added in their order.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// For each k of outs and each column c of width: outs[k][c] += sum over p of partials[p, k, c], in FP32, in an order
/// that depends on `count` only. partials: [count, n_outs, width] FP32. A null output is left out.
struct AddPartialsArgs {
  static constexpr int kMaxOuts = 3;
  const float* partials = nullptr;
  int64_t count = 0;
  int64_t width = 0;
  int n_outs = 1;
  float* outs[kMaxOuts] = {};
};
cudaError_t launch(const AddPartialsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
