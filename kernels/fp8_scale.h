// From the largest magnitude of some elements (amax) to the factor that takes them into the range of a format, and the
// amax histories of delayed scaling. One source for kernels and their CPU twins. No CUDA headers.
//
// code = encode(x * scale), x ~ decode(code) * inverse. Scales are powers of two, but for the scale of a whole tensor
// in NVFP4: x * scale and decode(code) * inverse are then exact, so that a value is rounded once, quantizing what was
// dequantized changes nothing, and delayed scaling has up to a factor of two in hand before it saturates. The price is
// at most one of the 18 (E4M3) or 32 (E5M2) octaves of a format, at its subnormal end; relative errors are the same.
#pragma once
#include <array>
#include <cfloat>
#include <cstdint>

#include "kernels/fp8_math.h"

namespace esm::kernels {

#define ESM_MATH [[maybe_unused]] ESM_HOST_DEVICE static inline

// --- amax: an unsigned maximum of these bits, the same in any order; NaN is above infinity ---------------------------

ESM_MATH uint32_t amax_bits(float x) { return bits_of(x) & kMagnitudeBits; }
ESM_MATH bool is_finite_amax(float amax) { return amax_bits(amax) < kInfinityBits; }

// --- powers of two ---------------------------------------------------------------------------------------------------

/// The greatest k, within +-126, with amax * 2^k <= `greatest` * 2^-margin; 0 for an amax of 0. `greatest` is normal.
/// An infinite amax counts as 2^128: the infinity then saturates to a code that becomes infinite again.
ESM_MATH int scale_exponent(float amax, float greatest, int margin) {
  const uint32_t a = amax_bits(amax), g = bits_of(greatest);
  if (a == 0) return 0;
  const int k = static_cast<int>(g >> 23) - static_cast<int>(a >> 23) - ((a & 0x7fffffu) > (g & 0x7fffffu) ? 1 : 0);
  const int with_margin = k - margin;
  return with_margin < -126 ? -126 : with_margin > 126 ? 126 : with_margin;
}
/// 2^k, -126 <= k <= 127.
ESM_MATH float power_of_two(int k) { return float_of(static_cast<uint32_t>(127 + k) << 23); }
/// 1 / scale of a power of two within 2^+-126: exact.
ESM_MATH float inverse_power(float scale) { return float_of((254u << 23) - bits_of(scale)); }

/// Scale of a tensor from its own amax. One that is not finite says nothing about the rest: `kept`, the last scale that
/// came from a finite amax, stays, or 1 if there was none (0).
ESM_MATH float tensor_scale(float amax, float greatest, int margin, float kept) {
  if (!is_finite_amax(amax)) return kept > 0.0f ? kept : 1.0f;
  return power_of_two(scale_exponent(amax, greatest, margin));
}

/// UE8M0 code of the inverse of 2^k, |k| <= 126: for E4M3, amax / 448 rounded up to a power of two, so that nothing
/// saturates. (The OCP specification's own conversion, 2^(floor(log2 amax) - 8), saturates amax above 1.75 * 2^n.)
ESM_MATH uint32_t mx_scale_code(int k) { return static_cast<uint32_t>(127 - k); }

// --- NVFP4: x ~ E2M1 code * UE4M3 scale of 16 elements * inverse of the tensor ---------------------------------------

inline constexpr float kMaxNvfp4 = kMaxE2M1 * kMaxE4M3;

/// Takes amax to the product of the greatest codes. 1 for an amax of 0 or not finite. Exact, since the scales of blocks
/// are rounded anyhow and power-of-two scales would leave half of their range empty.
ESM_MATH float nv_tensor_scale(float amax) {
  if (!is_finite_amax(amax) || amax == 0.0f) return 1.0f;
  const float scale = kMaxNvfp4 / amax;
  return scale < FLT_MAX ? scale : FLT_MAX;
}
/// Scale of 16 elements. A block that is not finite gets NaN, since E2M1 can say neither infinity nor NaN.
ESM_MATH uint32_t nv_block_code(float block_amax, float tensor_scale) {
  return is_finite_amax(block_amax) ? encode_e4m3(block_amax / kMaxE2M1 * tensor_scale) : 0x7fu;
}
/// Factor on the elements of a block; 0 where its scale became 0 (or NaN).
ESM_MATH float nv_multiplier(uint32_t block_code, float tensor_scale) {
  if (block_code == 0 || block_code == 0x7fu) return 0.0f;
  const float factor = tensor_scale / from_e4m3(block_code);
  return factor < FLT_MAX ? factor : FLT_MAX;
}

// --- where the scales of MX and NVFP4 lie ----------------------------------------------------------------------------

// As Blackwell's tensor cores read them (cuBLAS manual, "1D Block Scaling Factors Layout"): scales of an operand [rows,
// groups along k] in tiles of 128 rows and 4 groups, 512 bytes each, tiles of a row of tiles one after the other; in a
// tile those of row r at 16 * (r % 32) + 4 * (r / 32). Rows and groups that fill up the last tiles have scale 0.
inline constexpr int64_t kScaleTileRows = 128, kScaleTileGroups = 4;

ESM_MATH int64_t padded_scale_rows(int64_t rows) {
  return (rows + kScaleTileRows - 1) / kScaleTileRows * kScaleTileRows;
}
ESM_MATH int64_t padded_scale_groups(int64_t groups) {
  return (groups + kScaleTileGroups - 1) / kScaleTileGroups * kScaleTileGroups;
}
ESM_MATH int64_t group_scale_count(int64_t rows, int64_t groups) {
  return padded_scale_rows(rows) * padded_scale_groups(groups);
}
/// Byte of the scale of group `group` of row `row`.
ESM_MATH int64_t group_scale_index(int64_t row, int64_t group, int64_t groups) {
  const int64_t tile_row = row / kScaleTileRows * kScaleTileRows * padded_scale_groups(groups);
  const int64_t tile = group / kScaleTileGroups * kScaleTileGroups * kScaleTileRows;
  return tile_row + tile + row % 32 * 16 + row % kScaleTileRows / 32 * kScaleTileGroups + group % kScaleTileGroups;
}

// --- delayed scaling -------------------------------------------------------------------------------------------------

/// Which entries of the history decide.
enum class AmaxChoice { kMax, kMostRecent };
constexpr auto enum_names(AmaxChoice) { return std::array{"max", "most_recent"}; }

struct DelayedRule {
  float greatest = kMaxE4M3;  // of the format
  AmaxChoice choice = AmaxChoice::kMax;
  int margin = 0;  // octaves left free above amax
};

/// What the end of a step makes of one tensor.
struct ClosedAmax {
  float entry;   // for the history
  float scale;   // of the next step; 0: still none
  bool counted;  // amax was not finite
};

/// amax: of the step. others: the greatest entry of the history besides the one that is replaced. last: the newest
/// entry. scale: of this step, 0 if there is none yet. An amax that is not finite keeps the scale and repeats the last
/// entry: an infinity must not stand in the window for its whole length.
ESM_MATH ClosedAmax close_amax(const DelayedRule& rule, float amax, float others, float last, float scale) {
  if (!is_finite_amax(amax)) return {last, scale, true};
  const float top = rule.choice == AmaxChoice::kMax && others > amax ? others : amax;
  return {amax, power_of_two(scale_exponent(top, rule.greatest, rule.margin)), false};
}

/// Floats from one inverse to the next: cuBLASLt reads them at multiples of 16 bytes only.
inline constexpr int64_t kInverseStride = 4;

/// State of all tensors with delayed scaling; shapes are fixed and all of it belongs into a checkpoint. All zeros at
/// the start. A scale of 0 means that none is known: the tensor must then be measured before it is quantized, so that
/// the first step uses a real amax.
struct AmaxTables {
  int64_t tensors = 0, steps = 0;  // steps: length of a history
  float* history = nullptr;        // [tensors, steps], entry n at n % steps
  float* pending = nullptr;        // [tensors] amax of the step so far
  float* scale = nullptr;          // [tensors]
  float* inverse = nullptr;        // [tensors, kInverseStride], the first of each row counts; the rest stays
  int32_t* nonfinite = nullptr;    // [tensors] entries so far that were not finite
  int64_t* closed = nullptr;       // [1] entries so far
};

#undef ESM_MATH

}  // namespace esm::kernels
