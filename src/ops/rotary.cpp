#include "ops/rotary.h"

#include <cmath>

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/linear.h"
#include "ops/parallel.h"
#include "ops/place.h"

namespace esm::ops {

std::vector<float> rotary_inv_freq(int64_t head_dim, double base) {
  std::vector<float> result(head_dim / 2);
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  return result;
}

RotaryTable rotary_table(const Context& context, int64_t positions, std::span<const float> inv_freq) {
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  if (context.sketch) {
    const auto empty = [&] { return at::empty({positions, half}, options(context, at::kFloat)); };
    return {empty(), empty()};
  }
  RotaryTable table{at::empty({positions, half}, at::kFloat), at::empty({positions, half}, at::kFloat)};
  float *cos = data<float>(table.cos), *sin = data<float>(table.sin);
  parallel_ranges(positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * static_cast<double>(inv_freq[i]);
        cos[p * half + i] = static_cast<float>(std::cos(angle));
        sin[p * half + i] = static_cast<float>(std::sin(angle));
      }
  });
  if (context.on_cuda()) {
    bind_torch(context);
    table = {table.cos.to(device_of(context)), table.sin.to(device_of(context))};
  }
  return table;
}

void pack_positions(const Context& context, const Pack& pack) {
  if (on_cuda(context, "pack_positions", {pack.cu_seqlens, pack.positions})) return cuda::pack_positions(context, pack);
  const int32_t* cu_seqlens = data<int32_t>(pack.cu_seqlens);
  int32_t* positions = data<int32_t>(pack.positions);
  for (int64_t s = 0; s < pack.segments(); ++s)
    for (int32_t t = cu_seqlens[s]; t < cu_seqlens[s + 1]; ++t) positions[t] = t - cu_seqlens[s];
}

void rotary(Workspace& ws, const Pack& pack, const RotaryTable& table, const RotaryArgs& a) {
  const int64_t row = a.qkv.size(1), head_dim = row / (3 * a.heads);
  ESM_CHECK(table.cos.size(1) * 2 == head_dim && a.qkv.size(0) == pack.tokens, "rotary shapes");
  if (on_cuda(ws.context(), "rotary", {a.qkv, table.cos, table.sin, pack.positions, a.sums}))
    return cuda::rotary(ws, pack, table, a);
  const device::Phase phase(ws.context(), a.inverse ? "rotary backward" : "rotary forward");
  with_element(a.qkv, [&](auto element) {
    using T = decltype(element);
    cpu::rotary<T>({.rows = pack.tokens,
                    .heads = a.heads,
                    .head_dim = head_dim,
                    .vectors = 2,
                    .row_stride = row,
                    .positions = data<int32_t>(pack.positions),
                    .cos = data<float>(table.cos),
                    .sin = data<float>(table.sin),
                    .inverse = a.inverse,
                    .x = data<T>(a.qkv)});
  });
  if (a.sums.defined()) add_column_sums(ws, a.qkv, a.sums);
  quantize_operand(ws, a.gradient);
}

void expect_rotary_sums(Workspace& ws, int64_t tokens, int64_t heads, int64_t head_dim) {
  if (!ws.context().on_cuda()) return expect_column_sums(ws, tokens, 3 * heads * head_dim);
  ws.expect(Workspace::kPartials, cuda::rotary_sums_floats(tokens, heads, head_dim));
}

}  // namespace esm::ops
