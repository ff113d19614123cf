// Matrix products in FP64 on the host, and how far a product of FP32 sums may lie from them.
#pragma once
#include <cstdint>
#include <vector>

#include "checks/cases/gemm.h"

namespace esm::checks {

/// Values as they lie in device memory (device/gemm_desc.h).
struct GemmOperands {
  std::vector<double> a, b;
  std::vector<double> c;     // what is added; empty without accumulate
  std::vector<double> bias;  // empty without a bias
};

/// An element with what its rounding errors scale with.
struct GemmExpected {
  double value = 0;
  double terms = 0;       // sum of |a b|, |bias|, |c|: of the FP32 additions
  double before_add = 0;  // |AB| + |bias| + |C|: of a sum that is stored before the last addition; 0: nothing to add
};

struct GemmReference {
  std::vector<GemmExpected> d;              // [n, m], dense
  std::vector<GemmExpected> bias_gradient;  // [n] with that epilogue
};

/// `k_used` < k plants an error: the last products are left out.
GemmReference gemm_reference(const device::GemmDesc& desc, const GemmOperands& operands, int64_t k_used);

struct GemmError {
  double worst = 0;     // of |error| / bound, elementwise; infinite for NaN
  double relative = 0;  // L2
};

/// Elementwise, with u = 2^-8 for BF16: some cuBLASLt kernels store A B, A B + bias or A B + C in D's type before they
/// add the rest. That one sum is at most |AB| + |bias| + |C| =: M, its rounding u M, and the last one u (|D| + u M),
/// together
///   u |D| + u (1 + u) M,
/// whatever cancels in D. A plain product has no such sum (M = 0) and is rounded once. To that the FP32 sum of k terms
/// in chunks of 16, as tensor cores add.
GemmError gemm_error(const std::vector<double>& got, const std::vector<GemmExpected>& want, DType dtype, int64_t k);

/// Of the L2 error. BF16: rounding x = m 2^e, 1 <= m < 2, is off by 2^(e-8)/sqrt(3), and for normal values the mean of
/// m^-2 under the weight x^2 is 0.541: r = 2^-8 sqrt(0.541/3) = 1.66e-3. A stored sum before an addition doubles the
/// variance at most (its own is no larger than the result's: the terms are independent). A tenth more for errors that
/// are not quite uniform, and four standard deviations of a mean over n elements. Two stored sums (sqrt(3) r) and
/// partial sums in BF16 are above it, except for the smallest n.
double gemm_relative_bound(const device::GemmDesc& desc);

inline bool within(const GemmError& error, const device::GemmDesc& desc) {
  return error.worst <= 1 && error.relative <= gemm_relative_bound(desc);
}

}  // namespace esm::checks
