#include "train/tensor_rows.h"

#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "kernels/fp8_math.h"

namespace esm::train {
using checkpoint::element_count;
namespace {

float lowest_of(DType dtype) {
  if (dtype == DType::kF16) return -65504.0f;
  if (dtype == DType::kBF16) return float_from_bf16(0xff7f);
  return std::numeric_limits<float>::lowest();
}

template <class Half, float (*convert)(uint16_t)>
void widen(std::span<const std::byte> bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Half bits;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    out[i] = convert(bits);
  }
}

void from_floats(std::span<const float> values, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const uint16_t bits = dtype == DType::kF16 ? fp16_from_float(value) : bf16_from_float(value);
    std::memcpy(out, &bits, sizeof bits);
    out += sizeof bits;
  }
}

}  // namespace

bool is_weight_dtype(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

void to_floats(std::span<const std::byte> bytes, DType dtype, std::span<float> out) {
  ESM_CHECK(bytes.size() == out.size() * static_cast<size_t>(size_of(dtype)), "{} bytes for {} values", bytes.size(),
            out.size());
  ESM_CHECK(is_weight_dtype(dtype) || dtype == DType::kF8E4M3, "{} is no type of weights", dtype_name(dtype));
  if (out.empty()) return;
  if (dtype == DType::kF8E4M3) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = kernels::decode_e4m3(std::to_integer<uint32_t>(bytes[i]));
    return;
  }
  if (dtype == DType::kF32)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else if (dtype == DType::kF16)
    widen<uint16_t, float_from_fp16>(bytes, out);
  else
    widen<uint16_t, float_from_bf16>(bytes, out);
}

void copy_into_native(const checkpoint::TensorRef& source, const models::RowMap& rows, float factor,
                      std::span<float> native) {
  const int64_t n_rows = source.shape.at(0);
  const auto row_bytes = source.bytes.size() / static_cast<size_t>(n_rows);
  const size_t row_size = row_bytes / static_cast<size_t>(size_of(source.dtype));
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t target = rows.native_row(row, n_rows);
    if (target < 0) continue;
    const std::span<float> out = native.subspan(static_cast<size_t>(target) * row_size, row_size);
    to_floats(source.bytes.subspan(static_cast<size_t>(row) * row_bytes, row_bytes), source.dtype, out);
    if (factor != 1.0f)
      for (float& value : out) value *= factor;
  }
}

std::vector<std::byte> foreign_bytes(const models::ForeignTensor& tensor, DType dtype, std::span<const float> native) {
  const int64_t n_rows = tensor.shape.at(0);
  const auto row_size = static_cast<size_t>(element_count(tensor.shape) / n_rows);
  const size_t row_bytes = row_size * static_cast<size_t>(size_of(dtype));
  const std::vector<float> padding(row_size, tensor.rows.pad == models::RowMap::Pad::kLowest ? lowest_of(dtype) : 0.0f);
  std::vector<std::byte> bytes(static_cast<size_t>(n_rows) * row_bytes);
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t from = tensor.rows.native_row(row, n_rows);
    const std::span<const float> values =
        from < 0 ? std::span<const float>(padding) : native.subspan(static_cast<size_t>(from) * row_size, row_size);
    from_floats(values, dtype, bytes.data() + static_cast<size_t>(row) * row_bytes);
  }
  return bytes;
}

std::vector<std::byte> foreign_codes(const models::ForeignTensor& tensor, int exponent, std::span<const float> native,
                                     RoundingCount& count) {
  const int64_t n_rows = tensor.shape.at(0);
  const auto row_size = static_cast<size_t>(element_count(tensor.shape) / n_rows);
  std::vector<std::byte> codes(static_cast<size_t>(n_rows) * row_size);
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t from = tensor.rows.native_row(row, n_rows);
    ESM_CHECK(from >= 0, "'{}' has padding rows", tensor.name);
    encode_e4m3(native.subspan(static_cast<size_t>(from) * row_size, row_size), exponent,
                codes.data() + static_cast<size_t>(row) * row_size, count);
  }
  return codes;
}

}  // namespace esm::train
