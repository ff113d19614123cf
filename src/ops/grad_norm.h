// Global L2 norm of gradients.
#pragma once
#include <span>

#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// Sum of squares of a contiguous FP32 tensor, accumulated in FP64 over fixed blocks: bit-equal for any number of
/// threads. Add the results of all units, then take the root. Infinite or NaN when an element is (the square of a
/// finite FP32 value cannot overflow FP64), so std::isfinite() of the sum is the test for non-finite gradients.
double sum_of_squares(const Context& context, const at::Tensor& flat);
/// Of all of them together, added in their order. On a CUDA device this waits once.
double sum_of_squares(const Context& context, std::span<const at::Tensor> tensors);

}  // namespace esm::ops
