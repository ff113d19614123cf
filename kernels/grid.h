// Sizes of grids.
#pragma once
#include <cstdint>

namespace esm::kernels {

/// Multiprocessors that grids of fixed size are made for (H200). Fixed, not asked of the device: the number of partial
/// sums, hence the rounding of a reduction, must not depend on the device.
inline constexpr int kMultiprocessors = 132;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace esm::kernels
