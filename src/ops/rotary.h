// Rotary positions (Su et al. 2021), NeoX pairing: element i of a head turns with element i + K/2.
#pragma once
#include <span>
#include <vector>

#include "ops/aten.h"
#include "ops/gemm_operand.h"
#include "ops/pack.h"

namespace esm::ops {

/// base^(-2i/K), i = 0 .. K/2 - 1, computed in FP64.
std::vector<float> rotary_inv_freq(int64_t head_dim, double base = 10000.0);

/// cos and sin of position * inv_freq, [positions, K/2] FP32, computed in FP64 on the host.
struct RotaryTable {
  at::Tensor cos, sin;
};
RotaryTable rotary_table(const Context& context, int64_t positions, std::span<const float> inv_freq);

/// Turns q and k of qkv [T, 3, H, K] in place by their position in the segment; `inverse` turns back, which is the
/// backward of turning: (a, b) -> (a cos - b sin, b cos + a sin). sums, if defined, [3 H K] FP32 += column sums of the
/// result, v included: the bias gradient of the projection. gradient, if it is quantized, has qkv as its values and
/// receives the codes of the result; qkv itself then holds no result, if all is done at once.
struct RotaryArgs {
  at::Tensor qkv;
  int64_t heads = 0;
  bool inverse = false;
  at::Tensor sums = {};
  GemmOperand gradient = {};  // with `inverse`
};
void rotary(Workspace& ws, const Pack& pack, const RotaryTable& table, const RotaryArgs& a);
/// Announces to `ws` what that will ask for with sums.
void expect_rotary_sums(Workspace& ws, int64_t tokens, int64_t heads, int64_t head_dim);

}  // namespace esm::ops
