// Between FP32 weights and their halves: BF16, and a remainder that makes them exact again.
#pragma once
#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// Element type of remainders.
inline constexpr at::ScalarType kRemainderType = at::kShort;

/// bf16 = weights (FP32) rounded to nearest, ties away from 0 (the compute copy of every master format); remainder,
/// unless undefined, their low 16 bits. A NaN stays one. Equal numbers of elements.
void split_weights(const Context& context, const at::Tensor& weights, const at::Tensor& bf16,
                   const at::Tensor& remainder);
/// weights = what split_weights() was given, bit for bit (a NaN without its payload); without remainder the BF16
/// values.
void join_weights(const Context& context, const at::Tensor& bf16, const at::Tensor& remainder,
                  const at::Tensor& weights);

}  // namespace esm::ops
