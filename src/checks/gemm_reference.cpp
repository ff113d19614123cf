#include "checks/gemm_reference.h"

#include <algorithm>
#include <cmath>

#include "device/gemm_fp8.h"

namespace esm::checks {
namespace {

using device::GemmDesc, device::GemmEpilogue;

/// op(X) as rows over k, contiguous.
std::vector<double> rows_over_k(const std::vector<double>& x, int64_t rows, int64_t k, int64_t ld,
                                bool k_is_contiguous) {
  std::vector<double> result(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      result[static_cast<size_t>(r * k + i)] = x[static_cast<size_t>(k_is_contiguous ? r * ld + i : i * ld + r)];
  return result;
}

void apply_scales(std::vector<double>& x, device::GemmScale scale, const std::vector<float>& scales, int64_t rows,
                  int64_t k) {
  if (scale == device::GemmScale::kNone) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      x[static_cast<size_t>(r * k + i)] *= scales[static_cast<size_t>(device::scale_index(scale, rows, k, r, i))];
}

}  // namespace

double fp8_sum_bound(const GemmDesc& desc) {
  if (!desc.in_codes()) return 0;
  const int64_t added = desc.fast_accumulation ? desc.k : std::min<int64_t>(desc.k, 128);
  return 2 * 0x1p-13 * std::sqrt(static_cast<double>(added) / 3);
}

GemmReference gemm_reference(const GemmDesc& g, const GemmOperands& o, int64_t k_used) {
  std::vector<double> a = rows_over_k(o.a, g.m, g.k, g.lda, g.transpose_a);
  std::vector<double> b = rows_over_k(o.b, g.n, g.k, g.ldb, !g.transpose_b);
  apply_scales(a, g.scale_a, o.scale_a, g.m, g.k);
  apply_scales(b, g.scale_b, o.scale_b, g.n, g.k);
  for (double& x : a) x *= o.alpha;
  GemmReference r;
  r.d.resize(static_cast<size_t>(g.m * g.n));
  for (int64_t j = 0; j < g.n; ++j)
    for (int64_t i = 0; i < g.m; ++i) {
      const double *x = a.data() + i * g.k, *y = b.data() + j * g.k;
      GemmExpected& e = r.d[static_cast<size_t>(j * g.m + i)];
      for (int64_t l = 0; l < k_used; ++l) {
        const double product = x[l] * y[l];
        e.value += product;
        e.terms += std::abs(product);
        e.squares += product * product;
      }
      const double b_i = o.bias.empty() ? 0.0 : o.bias[static_cast<size_t>(i)];
      const double c_ij = o.c.empty() ? 0.0 : o.c[static_cast<size_t>(j * g.ldd + i)];
      if (!o.bias.empty() || !o.c.empty()) e.before_add = std::abs(e.value) + std::abs(b_i) + std::abs(c_ij);
      e.value += b_i + c_ij;
      e.terms += std::abs(b_i) + std::abs(c_ij);
    }
  return r;
}

GemmError gemm_error(const std::vector<double>& got, const std::vector<GemmExpected>& want, DType dtype, int64_t k,
                     double fp8_sum) {
  const double u = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-22;
  const double sum_rounding = (16 + static_cast<double>(k) / 16) * 0x1p-23;
  GemmError error;
  double off = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const GemmExpected& e = want[i];
    const double difference = std::abs(got[i] - e.value);
    const double sum = 5 * fp8_sum * (std::max(std::abs(e.value), e.before_add) + std::sqrt(e.squares));
    const double bound = u * (std::abs(e.value) + (1 + u) * e.before_add) + sum_rounding * e.terms + sum + 1e-30;
    if (std::isnan(difference)) return {INFINITY, INFINITY};
    error.worst = std::max(error.worst, difference / bound);
    off += difference * difference;
    norm += e.value * e.value;
  }
  error.relative = std::sqrt(off / std::max(norm, 1e-300));
  return error;
}

double gemm_relative_bound(const GemmDesc& desc) {
  const double fp8_sum = fp8_sum_bound(desc);
  if (desc.d == DType::kF32)
    return std::hypot(2e-6 * std::max(1.0, std::sqrt(static_cast<double>(desc.k) / 256)), fp8_sum);
  const bool adds = desc.accumulate || desc.epilogue == GemmEpilogue::kBias;
  const double rounding =
      1.66e-3 * (adds ? std::sqrt(2.0) : 1.0) * (1.1 + 3.5 / std::sqrt(static_cast<double>(desc.m * desc.n)));
  return std::hypot(rounding, fp8_sum);
}

}  // namespace esm::checks
