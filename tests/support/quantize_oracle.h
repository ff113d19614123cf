// Codes and scales of every grouping by their definition: loops over elements, in double arithmetic.
#pragma once
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "precision/formats.h"
#include "support/fp8_oracle.h"
#include "support/torch.h"

namespace esm::test {

inline const CodeFormat& format_of(const precision::Operand& operand) {
  return operand.format == precision::Format::kE4M3   ? kE4M3Format
         : operand.format == precision::Format::kE5M2 ? kE5M2Format
                                                      : kE2M1Format;
}

/// Sizes of a group in rows and along k; 0: all.
inline std::pair<int64_t, int64_t> group_of(precision::Grouping grouping) {
  switch (grouping) {
    case precision::Grouping::kNone:
    case precision::Grouping::kTensor: return {0, 0};
    case precision::Grouping::kOuter: return {1, 0};
    case precision::Grouping::kVector128: return {1, 128};
    case precision::Grouping::kBlock128: return {128, 128};
    case precision::Grouping::kMx32: return {1, 32};
    case precision::Grouping::kNv16: return {1, 16};
  }
  return {0, 0};
}

/// The operand that x is: rows [rows][k] in double, padding 0.
inline std::vector<std::vector<double>> operand_of(const at::Tensor& x, int64_t valid_rows, bool transposed) {
  const std::vector<double> v = values(x);
  const int64_t tokens = x.size(0), cols = x.size(1);
  std::vector<std::vector<double>> out(static_cast<size_t>(transposed ? cols : tokens),
                                       std::vector<double>(static_cast<size_t>(transposed ? tokens : cols), 0.0));
  for (int64_t t = 0; t < valid_rows; ++t)
    for (int64_t c = 0; c < cols; ++c) out[transposed ? c : t][transposed ? t : c] = v[t * cols + c];
  return out;
}

/// Greatest power of two that keeps amax in range, by trying.
inline double power_scale(double amax, double greatest) {
  if (amax == 0) return 1;
  int k = 126;
  while (std::ldexp(amax, k) > greatest) --k;
  return std::ldexp(1.0, k);
}

struct Expected {
  std::vector<uint8_t> codes;    // one a byte
  std::vector<double> inverses;  // of each element, of a block alone for kNv16
  std::vector<uint8_t> block;    // kMx32, kNv16: code of the scale of each element
  double amax = 0;
};

inline Expected expected(const std::vector<std::vector<double>>& x, const precision::Operand& to) {
  const CodeFormat& format = format_of(to);
  const std::vector<double> table = code_values(format), scales = code_values(kE4M3Format);
  const auto rows = static_cast<int64_t>(x.size()), k = static_cast<int64_t>(x[0].size());
  auto [group_rows, group_k] = group_of(to.grouping);
  if (group_rows == 0) group_rows = rows;
  if (group_k == 0) group_k = k;
  Expected e;
  std::map<std::pair<int64_t, int64_t>, double> tops;  // of groups
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      double& top = tops[{r / group_rows, i / group_k}];
      top = std::max(top, std::fabs(x[r][i]));
      e.amax = std::max(e.amax, top);
    }
  }
  const auto global = e.amax == 0 ? 1.0f : static_cast<float>(2688.0 / e.amax);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const double amax = tops[{r / group_rows, i / group_k}];
      double factor = power_scale(amax, table.back());
      e.inverses.push_back(1 / factor);
      if (to.grouping == precision::Grouping::kMx32) e.block.push_back(static_cast<uint8_t>(127 - std::ilogb(factor)));
      if (to.grouping == precision::Grouping::kNv16) {
        const auto part = static_cast<float>(amax / 6);
        const uint32_t code = nearest_code(kE4M3Format, scales, static_cast<double>(part * global));
        e.block.push_back(static_cast<uint8_t>(code));
        e.inverses.back() = scales[code];
        factor = code == 0 ? 0.0 : static_cast<double>(static_cast<float>(static_cast<double>(global) / scales[code]));
      }
      // FP32 as the product is: exact for powers of two.
      const auto scaled = static_cast<double>(static_cast<float>(x[r][i] * factor));
      e.codes.push_back(static_cast<uint8_t>(nearest_code(format, table, scaled)));
    }
  }
  return e;
}

}  // namespace esm::test
