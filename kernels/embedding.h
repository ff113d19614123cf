// Token embedding with ESM-2's token dropout; CPU twin: ops/embedding.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace esm::kernels {

/// The factor of each row. Rows of dummy segments and <pad> tokens get 0. With token dropout rows of <mask> get 0 and
/// all others of a segment 0.88 / (1 - masked / length); a segment of nothing but <mask> gets 0 throughout. Without it
/// all others get 1. cu_seqlens [segments + 1] as in PackGeometryArgs (unused places repeat `tokens`).
struct EmbeddingFactorsArgs {
  static constexpr uint8_t kPadToken = 1, kMaskToken = 32;
  int64_t segments = 0;  // capacity
  const int32_t* cu_seqlens = nullptr;
  const uint8_t* is_dummy = nullptr;  // [segments]
  const uint8_t* tokens = nullptr;    // [T]
  bool token_dropout = true;
  float* factors = nullptr;  // [T]
};
cudaError_t launch(const EmbeddingFactorsArgs& args, cudaStream_t stream);

/// y[t, :] = factors[t] * weight[tokens[t], :]; rows of factor 0 are exactly 0. cols is a multiple of 8, 16-byte
/// aligned. Bytes moved: rows * (cols * E + 5); the table stays in the caches.
struct EmbeddingArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* tokens = nullptr;
  const float* factors = nullptr;
  const void* weight = nullptr;  // [vocabulary, cols]
  void* y = nullptr;             // [rows, cols]
};
cudaError_t launch(const EmbeddingArgs& args, cudaStream_t stream);

/// dweight[v, :] += sum over rows with tokens[t] = v of factors[t] * dy[t, :], in FP32; rows of factor 0 are not read.
/// Blocks sum their rows token by token, in row order; then warps are added in their order, and blocks in an order that
/// depends on their number alone. Bytes moved: rows
/// * (cols * E + 5) and about 5 % for the partial sums.
struct EmbeddingBackwardArgs {
  static constexpr int64_t kMaxVocabulary = 64;
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 33;  // token ids are below
  const uint8_t* tokens = nullptr;
  const float* factors = nullptr;
  const void* dy = nullptr;
  float* dweight = nullptr;   // [vocabulary, cols], added to
  void* workspace = nullptr;  // embedding_backward_workspace() bytes
};
size_t embedding_backward_workspace(int64_t rows, int64_t cols, int64_t vocabulary);
cudaError_t launch(const EmbeddingBackwardArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
