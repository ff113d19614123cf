// Moves rows and element types between the tensors of a foreign format and ours. Host memory, one tensor at a time.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/name_map.h"

namespace esm::train {

/// F32, F16 and BF16 are element types that weights may have.
bool is_weight_dtype(DType dtype);

/// Converts `bytes` (unaligned) of such a type. out.size() elements.
void to_floats(std::span<const std::byte> bytes, DType dtype, std::span<float> out);

/// Copies the rows of `source` that `rows` maps into `native` (the whole native tensor); others stay as they are.
void copy_into_native(const checkpoint::TensorRef& source, const models::RowMap& rows, std::span<float> native);

/// The foreign tensor of element type `dtype`, filled from the native one: rounded to nearest even, padding rows as the
/// map says.
std::vector<std::byte> foreign_bytes(const models::ForeignTensor& tensor, DType dtype, std::span<const float> native);

}  // namespace esm::train
