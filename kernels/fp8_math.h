// Number formats of 8 and 4 bits, one value at a time: one source for kernels and their CPU twins. Codes are those of
// the PTX conversions named below, bit for bit, for every FP32 value: round to nearest even, subnormal numbers kept,
// -0 kept, beyond the greatest finite value (infinities too) saturated. Formats: OCP 8-bit Floating Point
// Specification 1.0 and OCP Microscaling Formats 1.0. No CUDA headers.
//
// format  sign.exponent.mantissa  bias  greatest  least normal  least   Inf   NaN codes
// E4M3    1.4.3                   7     448       2^-6          2^-9    none  0x7f, 0xff
// E5M2    1.5.2                   15    57344     2^-14         2^-16   0x7c  0x7d to 0x7f
// E2M1    1.2.1                   1     6         1             0.5     none  none
// UE8M0   0.8.0                   127   2^127     2^-127        2^-127  none  0xff: powers of two, no zero
// UE4M3   E4M3 without sign: codes 0 to 0x7f of E4M3, by the same functions
#pragma once
#include <cstdint>
#include <cstring>

#include "base/philox.h"

namespace esm::kernels {

// Functions below have internal linkage: files with different target flags must not share one copy of them.
#define ESM_MATH [[maybe_unused]] ESM_HOST_DEVICE static inline

inline constexpr float kMaxE4M3 = 448.0f;
inline constexpr float kMaxE5M2 = 57344.0f;
inline constexpr float kMaxE2M1 = 6.0f;

inline constexpr uint32_t kMagnitudeBits = 0x7fffffffu;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kNanBits = 0x7fc00000u;

ESM_MATH uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
ESM_MATH float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// --- encode ----------------------------------------------------------------------------------------------------------

/// Code of a magnitude given as FP32 bits, not NaN; kMaxBits: FP32 bits of the format's greatest value.
template <int kMantissa, int kBias, uint32_t kMaxBits>
ESM_MATH uint32_t encode_magnitude(uint32_t bits) {
  constexpr int kDrop = 23 - kMantissa;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - kBias) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  // Its unit in the last place is the least subnormal number, so that adding it rounds there.
  constexpr uint32_t kRounder = static_cast<uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23;
  // Saturating first, as an integer, also keeps a multiplication that made the value out of a fused multiply-add.
  const uint32_t kept = bits < kMaxBits ? bits : kMaxBits;
  const uint32_t normal = (kept - kRebias + ((1u << (kDrop - 1)) - 1u) + (kept >> kDrop & 1u)) >> kDrop;
  const uint32_t subnormal = bits_of(float_of(kept) + float_of(kRounder)) - kRounder;
  return kept < kLeastNormal ? subnormal : normal;
}

/// cvt.rn.satfinite.e4m3x2.f32; every NaN becomes 0x7f.
ESM_MATH uint32_t encode_e4m3(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & kMagnitudeBits;
  const uint32_t code = encode_magnitude<3, 7, 0x43e00000u>(magnitude) | (bits >> 24 & 0x80u);
  return magnitude > kInfinityBits ? 0x7fu : code;
}
/// cvt.rn.satfinite.e5m2x2.f32; every NaN becomes 0x7f, infinities +-57344.
ESM_MATH uint32_t encode_e5m2(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & kMagnitudeBits;
  const uint32_t code = encode_magnitude<2, 15, 0x47600000u>(magnitude) | (bits >> 24 & 0x80u);
  return magnitude > kInfinityBits ? 0x7fu : code;
}
/// cvt.rn.satfinite.e2m1x2.f32, one code in the low four bits; every NaN becomes +6. Of two codes in a byte the first
/// is the low half.
ESM_MATH uint32_t encode_e2m1(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & kMagnitudeBits;
  const uint32_t code = encode_magnitude<1, 1, 0x40c00000u>(magnitude) | (bits >> 28 & 0x8u);
  return magnitude > kInfinityBits ? 0x7u : code;
}
/// cvt.rp.satfinite.ue8m0x2.f32: the least power of two that is not below |x|; 0 becomes 2^-127, infinity 2^127, NaN
/// 0xff.
ESM_MATH uint32_t encode_ue8m0(float x) {
  const uint32_t magnitude = bits_of(x) & kMagnitudeBits;
  const uint32_t up = (magnitude + 0x7fffffu) >> 23;
  const uint32_t code = magnitude <= 0x400000u ? 0u : (up < 0xfeu ? up : 0xfeu);  // 0x400000: 2^-127
  return magnitude > kInfinityBits ? 0xffu : code;
}

// --- decode: exact; bits above those of the format must be 0 ---------------------------------------------------------

/// Of a code that is not NaN. E4M3 has FP32's layout with another bias: times 2^-120 its values, subnormal ones too,
/// are FP32 values with the last 20 bits zero.
ESM_MATH float from_e4m3(uint32_t byte) {
  const float magnitude = float_of((byte & 0x7fu) << 20) * 0x1p120f;
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}
ESM_MATH float decode_e4m3(uint32_t byte) { return (byte & 0x7fu) == 0x7fu ? float_of(kNanBits) : from_e4m3(byte); }

ESM_MATH float decode_e5m2(uint32_t byte) {
  const uint32_t code = byte & 0x7fu;
  const float finite = float_of(code << 21) * 0x1p112f;
  const float special = float_of(code > 0x7cu ? kNanBits : kInfinityBits);
  const float magnitude = code < 0x7cu ? finite : special;
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}

/// Of the low four bits.
ESM_MATH float decode_e2m1(uint32_t code) {
  const float magnitude = float_of((code & 0x7u) << 22) * 0x1p126f;
  return (code & 0x8u) != 0 ? -magnitude : magnitude;
}

ESM_MATH float decode_ue8m0(uint32_t byte) {
  return float_of(byte == 0xffu ? kNanBits : (byte == 0 ? 0x400000u : byte << 23));
}

#undef ESM_MATH

}  // namespace esm::kernels
