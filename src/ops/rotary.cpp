#include "ops/rotary.h"

#include <cmath>

#include "ops/dispatch.h"

namespace esm::ops {

std::vector<float> rotary_inv_freq(int64_t head_dim, double base) {
  std::vector<float> result(head_dim / 2);
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  return result;
}

RotaryTable rotary_table(int64_t positions, std::span<const float> inv_freq) {
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  RotaryTable table{at::empty({positions, half}, at::kFloat), at::empty({positions, half}, at::kFloat)};
  float *cos = data<float>(table.cos), *sin = data<float>(table.sin);
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * static_cast<double>(inv_freq[i]);
      cos[p * half + i] = static_cast<float>(std::cos(angle));
      sin[p * half + i] = static_cast<float>(std::sin(angle));
    }
  return table;
}

void rotary(const Pack& pack, const RotaryTable& table, const RotaryArgs& a) {
  require_cpu("rotary", {a.qkv, table.cos});
  const int64_t row = a.qkv.size(1), head_dim = row / (3 * a.heads);
  ESM_CHECK(table.cos.size(1) * 2 == head_dim && a.qkv.size(0) == pack.tokens, "rotary shapes");
  with_element(a.qkv, [&](auto element) {
    using T = decltype(element);
    cpu::rotary<T>({.rows = pack.tokens,
                    .heads = a.heads,
                    .head_dim = head_dim,
                    .vectors = 2,
                    .row_stride = row,
                    .positions = pack.positions.data(),
                    .cos = data<float>(table.cos),
                    .sin = data<float>(table.sin),
                    .inverse = a.inverse,
                    .x = data<T>(a.qkv)});
  });
}

}  // namespace esm::ops
