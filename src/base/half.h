// FP16 and BF16 on the host, one value at a time: round to nearest even, infinities and NaNs kept (a NaN keeps the high
// bits of its payload). Every FP16 and BF16 value survives the way to FP32 and back.
#pragma once
#include <bit>
#include <cstdint>

namespace esm {

constexpr float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    const uint32_t high = bits >> 16;
    return static_cast<uint16_t>((high & 0x7f) != 0 ? high : high | 0x40);  // a NaN must not become an infinity
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float float_from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact in FP32
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

constexpr uint16_t fp16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto with_sign = [sign](uint32_t rest) { return static_cast<uint16_t>(sign | rest); };
  if (magnitude > 0x7f800000u) {
    const uint32_t payload = (magnitude >> 13) & 0x3ffu;
    return with_sign(0x7c00u | (payload != 0 ? payload : 0x200u));
  }
  if (magnitude >= 0x477ff000u) return with_sign(0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u)                             // 2^-14: normal
    return with_sign((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
  // Subnormal: adding 0.5 = 2^-1 puts the last kept bit, 2^-24, at the end of the FP32 mantissa; the addition rounds to
  // nearest even.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return with_sign(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
}

}  // namespace esm
