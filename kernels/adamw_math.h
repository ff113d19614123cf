// Formats and arithmetic of AdamW: one source for the kernel (adamw.cu) and its CPU twin (ops/adamw_cpu.cpp), whose
// results are equal bit for bit. Every fused multiply-add is written out, so that no compiler chooses others; division
// and square root are correctly rounded on both sides. No CUDA headers.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "base/philox.h"
#include "kernels/fp8_math.h"
#include "kernels/update.h"

namespace esm::kernels {

/// Where the master weights are.
enum class MasterFormat {
  kF32,            // FP32 `master`; `compute`, unless there is none, receives its BF16 rounding
  kBF16Remainder,  // exactly FP32, in two halves: `compute`, the same BF16 rounding, and `remainder`, the low 16 bits
  kBF16            // `compute` alone, rounded stochastically
};
constexpr auto enum_names(MasterFormat) { return std::array{"fp32", "bf16_remainder", "bf16"}; }

/// How the moments are kept.
enum class MomentFormat {
  kF32,
  kBF16,  // rounded stochastically
  kE4M3   // one byte; scale per 128 elements; stochastic; the second moment as its root, never rounded to 0
};
constexpr auto enum_names(MomentFormat) { return std::array{"fp32", "bf16", "fp8"}; }

/// What the optimizer keeps of every parameter.
struct StateFormats {
  MasterFormat master = MasterFormat::kF32;
  MomentFormat moments = MomentFormat::kF32;
  bool operator==(const StateFormats&) const = default;
};

inline constexpr int64_t kScaleElements = 128;  // that share a scale of one-byte moments
inline constexpr int64_t kGroupElements = 64;   // that share learning rate and decay
inline constexpr int kMaxGroups = 16;

// Functions below have internal linkage: files with different target flags must not share one copy of them.
#define ESM_MATH [[maybe_unused]] ESM_HOST_DEVICE static inline

// --- weights ---------------------------------------------------------------------------------------------------------

/// BF16 of a weight: nearest, ties away from 0. Unlike ties to even it can be undone with the low half alone. A NaN
/// stays one.
ESM_MATH uint16_t weight_bf16(float x) {
  return static_cast<uint16_t>(x != x ? 0x7fc0u : (bits_of(x) + 0x8000u) >> 16);
}
/// Low half of the bits; a NaN loses its payload.
ESM_MATH uint16_t weight_remainder(float x) { return static_cast<uint16_t>(x != x ? 0u : bits_of(x) & 0xffffu); }
/// The weight again: weight_bf16() went up when the low half is at least half a unit.
ESM_MATH float join_weight(uint16_t bf16, uint16_t remainder) {
  return float_of(((static_cast<uint32_t>(bf16) - (static_cast<uint32_t>(remainder) >> 15)) << 16) | remainder);
}
ESM_MATH float widen_bf16(uint16_t bf16) { return float_of(static_cast<uint32_t>(bf16) << 16); }

/// BF16, away from 0 with the probability of the part that is cut off; random16: uniform. A NaN stays one.
ESM_MATH uint16_t stochastic_bf16(float x, uint32_t random16) {
  return static_cast<uint16_t>(x != x ? 0x7fc0u : (bits_of(x) + random16) >> 16);
}

// --- one-byte moments
// --------------------------------------------------------------------------------------------------

/// Code for from_e4m3(). x / scale of its 128 elements, so |x| <= 448 up to a rounding. Stochastic. `least`: smallest
/// code of a value that is not 0.
ESM_MATH uint32_t to_e4m3(float x, uint32_t random16, uint32_t least) {
  const float magnitude = x < 0.0f ? -x : x;
  const uint32_t bits = bits_of((magnitude < 448.0f ? magnitude : 448.0f) * 0x1p-120f);
  const uint32_t code = (bits + (random16 << 4)) >> 20;
  const uint32_t kept = x != 0.0f && code < least ? least : code;
  return kept | (x < 0.0f ? 0x80u : 0u);
}
/// Scale of 128 elements by their greatest magnitude. Moments without gradient decay for ever; before the inverse
/// overflows they become 0.
ESM_MATH float e4m3_scale(float top) { return top > 1e-30f ? top * (1.0f / 448.0f) : 0.0f; }
ESM_MATH float e4m3_inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// --- random numbers
// ----------------------------------------------------------------------------------------------------

/// Words of four elements, `quad` * 4 and on of the whole model, in update number `updates`. Moments: 16 bits an
/// element, the first moments from words 0 and 1, the second from 2 and 3. Weights: words 0 and 1.
ESM_MATH PhiloxResult moment_words(uint64_t seed, uint64_t quad, int64_t updates) {
  return philox(seed, RandomStream::kRounding, quad, static_cast<uint32_t>(updates) & 0x7fffffffu);
}
ESM_MATH PhiloxResult weight_words(uint64_t seed, uint64_t quad, int64_t updates) {
  return philox(seed, RandomStream::kRounding, quad, static_cast<uint32_t>(updates) | 0x80000000u);
}

// --- update
// ------------------------------------------------------------------------------------------------------------

/// What all elements of a group share.
struct AdamwScalars {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  float grad_scale, inv_sqrt_bias2;
  float decay, step_size;  // those of the group
};

/// 1 - lr f w and lr f / (1 - beta1^updates) of a group with lr factor f and weight decay w.
ESM_MATH float group_decay(double lr, double lr_factor, double weight_decay) {
  return static_cast<float>(fma(-lr * lr_factor, weight_decay, 1.0));
}
ESM_MATH float group_step_size(double step_lr, double lr_factor) { return static_cast<float>(step_lr * lr_factor); }

/// base^n by squaring: equal on host and device, where pow() need not be.
ESM_MATH double power(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, base *= base)
    if ((n & 1) != 0) result *= base;
  return result;
}

/// Of d.updates and d.lr.
ESM_MATH void set_bias_correction(AdamwDynamic& d, double beta1, double beta2) {
  d.step_lr = d.lr / fma(-1.0, power(beta1, d.updates), 1.0);
  d.inv_sqrt_bias2 = static_cast<float>(1.0 / sqrt(fma(-1.0, power(beta2, d.updates), 1.0)));
}

/// New weight; m and v are updated.
ESM_MATH float adamw_update(float p, float grad, float& m, float& v, const AdamwScalars& s) {
  const float g = grad * s.grad_scale;
  m = fmaf(s.beta1, m, s.one_minus_beta1 * g);
  v = fmaf(s.beta2, v, s.one_minus_beta2 * (g * g));
  return fmaf(p, s.decay, -(s.step_size * m / fmaf(sqrtf(v), s.inv_sqrt_bias2, s.eps)));
}

#undef ESM_MATH

}  // namespace esm::kernels
