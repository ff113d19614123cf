// Token embedding with ESM-2's token dropout.
#pragma once
#include "ops/pack.h"
#include "ops/workspace.h"

namespace esm::ops {

inline constexpr uint8_t kPadToken = 1;
inline constexpr uint8_t kMaskToken = 32;

/// factors [T] FP32, one a row. Rows of dummy segments and <pad> tokens get 0. With token dropout rows of <mask> get 0
/// and all others of a segment 0.88 / (1 - masked / length), where 0.88 = 1 - 0.15 * 0.8 is the share that training
/// shows; a segment of nothing but <mask> gets 0 throughout. Without it all others get 1.
void embedding_factors(const Context& context, const Pack& pack, bool token_dropout, const at::Tensor& factors);

/// y[T, D] = factor * weight[id]; rows of factor 0 are exactly 0. ids [T] uint8.
void embedding(const Context& context, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& weight,
               const at::Tensor& y);

/// dweight[V, D] FP32 += factor * dy, summed per token id in row order without atomics.
void embedding_backward(Workspace& ws, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& dy,
                        const at::Tensor& dweight);
/// Announces to `ws` what that will ask for.
void expect_embedding_backward(Workspace& ws, int64_t rows, int64_t cols, int64_t vocabulary);

}  // namespace esm::ops
