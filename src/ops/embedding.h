// Token embedding with ESM-2's token dropout.
#pragma once
#include <span>
#include <vector>

#include "ops/aten.h"
#include "ops/pack.h"

namespace esm::ops {

inline constexpr uint8_t kPadToken = 1;
inline constexpr uint8_t kMaskToken = 32;

/// The factor of each row, [T]. Rows of dummy segments and <pad> tokens get 0. With token dropout rows of <mask> get 0
/// and all others of a segment 0.88 / (1 - masked / length), where 0.88 = 1 - 0.15 * 0.8 is the share that training
/// shows; a segment of nothing but <mask> gets 0 throughout. Without it all others get 1.
std::vector<float> embedding_factors(const Pack& pack, std::span<const uint8_t> tokens, bool token_dropout);

/// y[T, D] = factor * weight[token]; rows of factor 0 are exactly 0.
void embedding(std::span<const uint8_t> tokens, std::span<const float> factors, const at::Tensor& weight,
               const at::Tensor& y);

/// dweight[V, D] FP32 += factor * dy, summed per token id in row order without atomics.
void embedding_backward(std::span<const uint8_t> tokens, std::span<const float> factors, const at::Tensor& dy,
                        const at::Tensor& dweight);

}  // namespace esm::ops
