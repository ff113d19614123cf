// Matrix products in FP64 on the host, and how far a product of FP32 sums may lie from them.
#pragma once
#include <cstdint>
#include <vector>

#include "checks/cases/gemm.h"

namespace esm::checks {

/// Values as they lie in device memory (device/gemm_desc.h); of operands in codes those of their codes, without scale.
struct GemmOperands {
  std::vector<double> a, b;
  std::vector<float> scale_a, scale_b;  // in the order of device::scale_index(); empty without scales
  double alpha = 1;                     // with device_factors
  std::vector<double> c;                // what is added; empty without accumulate
  std::vector<double> bias;             // empty without a bias
};

/// An element with what its rounding errors scale with.
struct GemmExpected {
  double value = 0;
  double terms = 0;       // sum of |a b|, |bias|, |c|: of the FP32 additions
  double squares = 0;     // sum of (a b)^2: of the additions of FP8 products
  double before_add = 0;  // |AB| + |bias| + |C|: of a sum that is stored before the last addition; 0: nothing to add
};

struct GemmReference {
  std::vector<GemmExpected> d;  // [n, m], dense
};

/// `k_used` < k plants an error: the last products are left out.
GemmReference gemm_reference(const device::GemmDesc& desc, const GemmOperands& operands, int64_t k_used);

struct GemmError {
  double worst = 0;     // of |error| / bound, elementwise; infinite for NaN
  double relative = 0;  // L2
};

/// Of the L2 error of a sum of FP8 products before it is stored; 0 for other operands. Hopper's tensor cores align the
/// products of 32 elements and the sum so far to the largest of them and drop what is below 2^-13 of its power of two
/// (DeepSeek-V3 report, section 3.5.2). Of up to 33 addends of random sign each loses up to 2^-13, 2^-13/sqrt(3) in the
/// L2 mean; K/32 such additions leave 2^-13 sqrt(K/3) of the sum. Twice that is allowed, for sums of unlike addends,
/// with K at most 128 when every 128 elements are added up in FP32 (without fast accumulation). Products of two FP8
/// values have at most 8 bits, so that many lose nothing: on normal values the model loses a tenth of the bound.
double fp8_sum_bound(const device::GemmDesc& desc);

/// Elementwise, with u = 2^-8 for BF16: some cuBLASLt kernels store A B, A B + bias or A B + C in D's type before they
/// add the rest. That one sum is at most |AB| + |bias| + |C| =: M, its rounding u M, and the last one u (|D| + u M),
/// together
///   u |D| + u (1 + u) M,
/// whatever cancels in D. A plain product has no such sum (M = 0) and is rounded once. To that the FP32 sum of k terms
/// in chunks of 16, as tensor cores add. To that, for FP8 products, 5 r (M + sqrt(squares)), or |D| in place of M, with
/// r = fp8_sum_bound(): ten standard deviations of the sum's error, which grows with the sum.
GemmError gemm_error(const std::vector<double>& got, const std::vector<GemmExpected>& want, DType dtype, int64_t k,
                     double fp8_sum = 0);
inline GemmError gemm_error(const std::vector<double>& got, const std::vector<GemmExpected>& want,
                            const device::GemmDesc& desc) {
  return gemm_error(got, want, desc.d, desc.k, fp8_sum_bound(desc));
}

/// Of the L2 error. BF16: rounding x = m 2^e, 1 <= m < 2, is off by 2^(e-8)/sqrt(3), and for normal values the mean of
/// m^-2 under the weight x^2 is 0.541: r = 2^-8 sqrt(0.541/3) = 1.66e-3. A stored sum before an addition doubles the
/// variance at most (its own is no larger than the result's: the terms are independent). A tenth more for errors that
/// are not quite uniform, and four standard deviations of a mean over n elements. Two stored sums (sqrt(3) r) and
/// partial sums in BF16 are above it, except for the smallest n. The error of FP8 sums is independent of these.
double gemm_relative_bound(const device::GemmDesc& desc);

inline bool within(const GemmError& error, const device::GemmDesc& desc) {
  return error.worst <= 1 && error.relative <= gemm_relative_bound(desc);
}

}  // namespace esm::checks
