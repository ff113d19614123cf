#include "ops/quantize_cpu.h"

#include "kernels/fp8_scale.h"

// Tiles of 128 x 128 are gathered as FP32 (so a transposed operand reads lines of x, too), scaled by groups, encoded.

namespace esm::ops::cpu {
namespace {

using namespace kernels;
using precision::Format;
using precision::greatest;
using precision::Grouping;

constexpr int64_t kTile = kBandRows;
constexpr int64_t kMaxGroups = kTile / 16;  // of a row of a tile

int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t groups_of(int64_t k, int64_t width) { return (k + width - 1) / width; }

/// Elements of a row of a tile that share a factor.
int64_t group_width(Grouping grouping) {
  switch (grouping) {
    case Grouping::kMx32: return 32;
    case Grouping::kNv16: return 16;
    case Grouping::kNone:
    case Grouping::kTensor:
    case Grouping::kOuter:
    case Grouping::kVector128:
    case Grouping::kBlock128: break;
  }
  return kTile;
}

template <Format kFormat>
uint32_t encode(float x) {
  if constexpr (kFormat == Format::kE4M3) return encode_e4m3(x);
  if constexpr (kFormat == Format::kE5M2) return encode_e5m2(x);
  return encode_e2m1(x);
}

template <Format kFormat>
float decode(uint32_t code) {
  if constexpr (kFormat == Format::kE4M3) return decode_e4m3(code);
  if constexpr (kFormat == Format::kE5M2) return decode_e5m2(code);
  return decode_e2m1(code);
}

/// Calls body.operator()<format>().
template <class Body>
void with_format(Format format, const Body& body) {
  if (format == Format::kE4M3) return body.template operator()<Format::kE4M3>();
  if (format == Format::kE5M2) return body.template operator()<Format::kE5M2>();
  body.template operator()<Format::kE2M1>();
}

struct Tile {
  alignas(64) float values[kTile][kTile];
  float factors[kTile][kMaxGroups];
};

/// Zeros where the operand has no values.
template <class T>
void gather(const Quantize<T>& a, int64_t row0, int64_t k0, Tile& tile) {
  const int64_t rows = less(a.valid_rows - row0, kTile), width = less(a.valid_k - k0, kTile);
  if (rows < kTile || width < kTile)
    for (auto& row : tile.values)
      for (float& value : row) value = 0.0f;
  const T* from = a.x + row0 * a.row_stride + k0 * a.k_stride;
  if (a.k_stride == 1) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < width; ++i) tile.values[r][i] = load(from[r * a.row_stride + i]);
  } else {
    constexpr int64_t kLines = 16;  // of the tile at a time: what is read is 16 elements in a row
    for (int64_t first = 0; first < rows; first += kLines) {
      const int64_t last = less(rows, first + kLines);
      for (int64_t i = 0; i < width; ++i)
        for (int64_t r = first; r < last; ++r) tile.values[r][i] = load(from[r * a.row_stride + i * a.k_stride]);
    }
  }
}

uint32_t amax_of(const float* x, int64_t n) {
  uint32_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = amax_bits(x[i]);
    top = bits > top ? bits : top;
  }
  return top;
}

/// Factors of all groups of the tile, and their inverses to where they belong.
template <class T>
void scale_tile(const Quantize<T>& a, int64_t row0, int64_t k0, Tile& tile) {
  const int64_t rows = less(a.rows - row0, kTile), block = k0 / kTile;
  const float top = greatest(a.format);
  switch (a.grouping) {
    case Grouping::kNone:
    case Grouping::kTensor:
    case Grouping::kOuter: return;  // known before the first tile
    case Grouping::kVector128:
      for (int64_t r = 0; r < rows; ++r) {
        const int exponent = scale_exponent(float_of(amax_of(tile.values[r], kTile)), top, 0);
        tile.factors[r][0] = power_of_two(exponent);
        a.inverses[block * a.rows + row0 + r] = power_of_two(-exponent);
      }
      return;
    case Grouping::kBlock128: {
      const int exponent = scale_exponent(float_of(amax_of(tile.values[0], kTile * kTile)), top, 0);
      for (auto& factors : tile.factors) factors[0] = power_of_two(exponent);
      const int64_t padded = groups_of(groups_of(a.k, kTile), 4) * 4;
      a.inverses[row0 / kTile * padded + block] = power_of_two(-exponent);
      return;
    }
    case Grouping::kMx32:
    case Grouping::kNv16: break;
  }
  const int64_t width = group_width(a.grouping), in_row = groups_of(a.k, width);
  const int64_t first = k0 / width, groups = less(in_row - first, kTile / width);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const float amax = float_of(amax_of(tile.values[r] + g * width, width));
      uint8_t& inverse = a.inverse_bytes[group_scale_index(row0 + r, first + g, in_row)];
      if (a.grouping == Grouping::kMx32) {
        const int exponent = scale_exponent(amax, top, 0);
        tile.factors[r][g] = power_of_two(exponent);
        inverse = static_cast<uint8_t>(mx_scale_code(exponent));
      } else {
        const uint32_t code = nv_block_code(amax, a.scale);
        tile.factors[r][g] = nv_multiplier(code, a.scale);
        inverse = static_cast<uint8_t>(code);
      }
    }
  }
}

template <Format kFormat>
void encode_row(const float* x, const float* factors, int64_t group, int64_t width, uint8_t* codes) {
  constexpr bool kPairs = kFormat == Format::kE2M1;
  for (int64_t begin = 0; begin < width; begin += group) {
    const int64_t end = less(width, begin + group);
    const float factor = factors[begin / group];
    if constexpr (kPairs) {
      for (int64_t i = begin; i < end; i += 2) {  // beyond an odd width lies a 0 of the tile
        const uint32_t low = encode<kFormat>(x[i] * factor);
        const uint32_t high = i + 1 < end ? encode<kFormat>(x[i + 1] * factor) : 0;
        codes[i / 2] = static_cast<uint8_t>(low | high << 4);
      }
    } else {
      for (int64_t i = begin; i < end; ++i) codes[i] = static_cast<uint8_t>(encode<kFormat>(x[i] * factor));
    }
  }
}

}  // namespace

template <class T>
uint32_t quantize_band(const Quantize<T>& a, int64_t band) {
  const int64_t row0 = band * kTile, rows = less(a.rows - row0, kTile), group = group_width(a.grouping);
  thread_local Tile tile;
  if (a.grouping == Grouping::kTensor)
    for (auto& factors : tile.factors) factors[0] = a.scale;
  if (a.grouping == Grouping::kOuter) {
    uint32_t tops[kTile] = {};
    for (int64_t k0 = 0; k0 < a.k; k0 += kTile) {
      gather(a, row0, k0, tile);
      for (int64_t r = 0; r < rows; ++r) {
        const uint32_t bits = amax_of(tile.values[r], kTile);
        tops[r] = bits > tops[r] ? bits : tops[r];
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int exponent = scale_exponent(float_of(tops[r]), greatest(a.format), 0);
      tile.factors[r][0] = power_of_two(exponent);
      a.inverses[row0 + r] = power_of_two(-exponent);
    }
  }
  uint32_t top = 0;
  for (int64_t k0 = 0; k0 < a.k; k0 += kTile) {
    gather(a, row0, k0, tile);
    const uint32_t bits = amax_of(tile.values[0], kTile * kTile);
    top = bits > top ? bits : top;
    scale_tile(a, row0, k0, tile);
    const int64_t width = less(a.k - k0, kTile), byte0 = a.format == Format::kE2M1 ? k0 / 2 : k0;
    with_format(a.format, [&]<Format kFormat>() {
      for (int64_t r = 0; r < rows; ++r)
        encode_row<kFormat>(tile.values[r], tile.factors[r], group, width, a.codes + (row0 + r) * a.row_bytes + byte0);
    });
  }
  return top;
}
template uint32_t quantize_band(const Quantize<float>&, int64_t);
template uint32_t quantize_band(const Quantize<Bf16>&, int64_t);

namespace {

/// Factor of the elements from k0 of row r on, without that of the whole tensor.
float inverse_at(const Dequantize& a, int64_t r, int64_t k0) {
  switch (a.grouping) {
    case Grouping::kNone:
    case Grouping::kTensor: break;
    case Grouping::kOuter: return a.inverses[r];
    case Grouping::kVector128: return a.inverses[k0 / kTile * a.rows + r];
    case Grouping::kBlock128: return a.inverses[r / kTile * (groups_of(groups_of(a.k, kTile), 4) * 4) + k0 / kTile];
    case Grouping::kMx32: return decode_ue8m0(a.inverse_bytes[group_scale_index(r, k0 / 32, groups_of(a.k, 32))]);
    case Grouping::kNv16: return decode_e4m3(a.inverse_bytes[group_scale_index(r, k0 / 16, groups_of(a.k, 16))]);
  }
  return a.inverses[0];
}

template <Format kFormat>
void dequantize_row(const Dequantize& a, int64_t r) {
  const int64_t group = group_width(a.grouping);
  const uint8_t* codes = a.codes + r * a.row_bytes;
  float* y = a.y + r * a.k;
  const float tensor = a.grouping == Grouping::kNv16 ? 1.0f / a.scale : 1.0f;
  for (int64_t begin = 0; begin < a.k; begin += group) {
    const int64_t end = less(a.k, begin + group);
    const float inverse = inverse_at(a, r, begin);
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t code = kFormat == Format::kE2M1 ? codes[i / 2] >> (i % 2 * 4) & 0xfu : codes[i];
      y[i] = decode<kFormat>(code) * inverse * tensor;
    }
  }
}

}  // namespace

void dequantize_band(const Dequantize& a, int64_t band) {
  const int64_t end = less(a.rows, (band + 1) * kTile);
  with_format(a.format, [&]<Format kFormat>() {
    for (int64_t r = band * kTile; r < end; ++r) dequantize_row<kFormat>(a, r);
  });
}

template <class T>
uint32_t largest_bits(int64_t n, const T* x) {
  uint32_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = amax_bits(load(x[i]));
    top = bits > top ? bits : top;
  }
  return top;
}
template uint32_t largest_bits(int64_t, const float*);
template uint32_t largest_bits(int64_t, const Bf16*);

}  // namespace esm::ops::cpu
