// Scalar arithmetic written so that compilers vectorize loops over it. For the *_cpu.cpp files only: no torch.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace esm::ops::cpu {

/// A BF16 value in memory (the upper half of an FP32).
struct Bf16 {
  uint16_t bits;
};

// Internal linkage: files with different target flags must not share one copy of these.
static inline float load(float value) { return value; }
static inline float load(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

static inline void store(float& to, float value) { to = value; }
/// Round to nearest even; NaN stays NaN.
static inline void store(Bf16& to, float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  to.bits = static_cast<uint16_t>(value != value ? 0x7FC0u : rounded);
}

/// e^x within 2 ulp, for x taken into [-87.3, 88] (so never 0 or infinite); NaN for NaN.
static inline float exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;         // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
  const float above = -87.3f > x ? -87.3f : x;  // in this order they are single instructions that keep NaN
  const float clamped = 88.0f < above ? 88.0f : above;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;  // Cephes expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
}

}  // namespace esm::ops::cpu
