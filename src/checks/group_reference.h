// What kernels for MX and NVFP4 must leave: the CPU twin, which is tested by definition in tests/unit/ops. For
// _cuda.cpp files.
#pragma once
#include "checks/harness.h"
#include "kernels/fp8_scale.h"
#include "kernels/quantize_groups.h"
#include "ops/quantize_cpu.h"
#include "precision/formats.h"

namespace esm::checks {

inline const char* name_of(kernels::GroupFormat format) { return format == kernels::GroupFormat::kMx32 ? "mx" : "nv"; }

/// Largest magnitude of the rows that count.
inline float amax_of(const std::vector<float>& x, size_t counted) {
  uint32_t top = 0;
  for (size_t i = 0; i < counted; ++i) top = std::max(top, kernels::amax_bits(x[i]));
  return kernels::float_of(top);
}

struct GroupOperand {
  std::vector<uint8_t> codes, scales;  // as precision::layout() has them
  std::vector<float> values;           // [rows, cols]: there and back, in FP32
};

/// x [rows, cols] as an operand with groups along its columns or, with `along_rows`, along its rows: then codes and
/// scales are those of the transpose.
inline GroupOperand group_operand(const std::vector<float>& x, int64_t rows, int64_t cols, int64_t counted,
                                  kernels::GroupFormat format, bool along_rows, float amax) {
  const bool nv = format == kernels::GroupFormat::kNv16;
  const precision::Operand operand{.format = nv ? precision::Format::kE2M1 : precision::Format::kE4M3,
                                   .grouping = nv ? precision::Grouping::kNv16 : precision::Grouping::kMx32};
  const int64_t n = along_rows ? cols : rows, k = along_rows ? rows : cols;
  const precision::OperandLayout layout = precision::layout(operand, n, k);
  GroupOperand result{.codes = std::vector<uint8_t>(static_cast<size_t>(n * layout.code_bytes)),
                      .scales = std::vector<uint8_t>(static_cast<size_t>(layout.scales)),
                      .values = std::vector<float>(x.size())};
  std::vector<float> values(x.size());
  const float scale = nv ? kernels::nv_tensor_scale(amax) : 1.0f;
  const ops::cpu::Quantize<float> there{.rows = n,
                                        .k = k,
                                        .valid_rows = along_rows ? n : counted,
                                        .valid_k = along_rows ? counted : k,
                                        .row_stride = along_rows ? 1 : cols,
                                        .k_stride = along_rows ? cols : 1,
                                        .x = x.data(),
                                        .format = operand.format,
                                        .grouping = operand.grouping,
                                        .scale = scale,
                                        .row_bytes = layout.code_bytes,
                                        .codes = result.codes.data(),
                                        .inverses = nullptr,
                                        .inverse_bytes = result.scales.data()};
  const ops::cpu::Dequantize back{.rows = n,
                                  .k = k,
                                  .format = operand.format,
                                  .grouping = operand.grouping,
                                  .scale = scale,
                                  .row_bytes = layout.code_bytes,
                                  .codes = result.codes.data(),
                                  .inverses = nullptr,
                                  .inverse_bytes = result.scales.data(),
                                  .y = values.data()};
  for (int64_t band = 0; band * ops::cpu::kBandRows < n; ++band) {
    ops::cpu::quantize_band(there, band);
    ops::cpu::dequantize_band(back, band);
  }
  for (int64_t r = 0; r < n; ++r)
    for (int64_t i = 0; i < k; ++i)
      result.values[static_cast<size_t>(along_rows ? i * n + r : r * k + i)] = values[static_cast<size_t>(r * k + i)];
  return result;
}

/// NaN is NaN, whatever its payload.
inline size_t unlike(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    n += !(std::isnan(a[i]) && std::isnan(b[i])) && kernels::bits_of(a[i]) != kernels::bits_of(b[i]);
  return n;
}

/// Magnitudes that differ from place to place; some groups of zeros.
inline std::vector<float> uneven(int64_t rows, int64_t cols, Random& random) {
  std::vector<float> x = random.normals(rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t r = i / cols, k = i % cols;
    x[static_cast<size_t>(i)] *=
        (r / 48 + k / 48) % 7 == 0 ? 0.0f : std::exp2(static_cast<float>((r / 5 * 7 + k / 24 * 3) % 23 - 11));
  }
  return x;
}

/// [256, 256] of BF16 values in their order: groups of one magnitude. `finite`: zeros for those that are not, so that
/// the factor of the tensor is not 1.
inline std::vector<float> every_bf16(bool finite) {
  std::vector<float> every(0x10000);
  for (uint32_t bits = 0; bits < every.size(); ++bits) {
    const float value = float_from_bf16(static_cast<uint16_t>(bits));
    every[bits] = finite && !std::isfinite(value) ? 0.0f : value;
  }
  return every;
}

/// What must not be read: behind the rows that count.
inline void poison_padding(std::vector<float>& x, size_t counted) {
  for (size_t i = counted; i < x.size(); ++i) x[i] = i % 2 == 0 ? NAN : 3e38f;
}

}  // namespace esm::checks
