// Between FP32 and BF16.
#pragma once
#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// to = from, element by element, of equal length; FP32 to BF16 rounds to nearest even, BF16 to FP32 is exact.
void cast(const Context& context, const at::Tensor& from, const at::Tensor& to);

}  // namespace esm::ops
