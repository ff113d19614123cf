// Moves rows and element types between the tensors of a foreign format and ours. Host memory, one tensor at a time.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/name_map.h"
#include "train/fp8_weights.h"

namespace esm::train {

/// F32, F16 and BF16 are element types that any weights may have.
bool is_weight_dtype(DType dtype);

/// Converts `bytes` (unaligned) of such a type, or of F8_E4M3. out.size() elements.
void to_floats(std::span<const std::byte> bytes, DType dtype, std::span<float> out);

/// Copies the rows of `source` that `rows` maps into `native` (the whole native tensor); others stay as they are.
/// factor: on the codes of F8_E4M3, 1 for other types.
void copy_into_native(const checkpoint::TensorRef& source, const models::RowMap& rows, float factor,
                      std::span<float> native);

/// The foreign tensor of element type `dtype` (one of is_weight_dtype), filled from the native one: rounded to nearest
/// even, padding rows as the map says.
std::vector<std::byte> foreign_bytes(const models::ForeignTensor& tensor, DType dtype, std::span<const float> native);

/// The same as E4M3 codes of value * 2^exponent (train/fp8_weights.h). Not for tensors with padding rows.
std::vector<std::byte> foreign_codes(const models::ForeignTensor& tensor, int exponent, std::span<const float> native,
                                     RoundingCount& count);

}  // namespace esm::train
