// Weights of 8 bits in files of Hugging Face and NVIDIA: E4M3 codes beside one FP32 factor, value = code * factor
// (names and shapes of compressed-tensors, format "float-quantized", strategy "tensor"). Host memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/name_map.h"

namespace esm::train {

/// "...weight" -> "...weight_scale": F32 [1].
std::string scale_name(std::string_view weight);
/// Whether a tensor of this name is the factor of another one.
bool is_scale_name(std::string_view name);

/// A matrix of an encoder layer: what an export in 8 bits rounds. All else stays FP32.
bool is_layer_matrix(const models::ForeignTensor& tensor);
/// What may have 8 bits in a file that is imported: these, and the matrix in the head.
bool may_have_8_bits(const models::ForeignTensor& tensor);

/// The factor of `weight` from the file that holds both. Throws CheckpointError naming the tensor: it is missing, not
/// F32 [1], not finite or not above 0.
float read_scale(const checkpoint::SafetensorsSet& files, const checkpoint::TensorRef& weight);

/// Throws CheckpointError for a factor whose weight is missing or not of 8 bits.
void check_scales_have_weights(const checkpoint::SafetensorsSet& files);

/// The k with codes = encode(values * 2^k) for a whole native tensor (q, k and v share one): that of
/// kernels::scale_exponent() for the largest magnitude as it will be after rounding. Since largest magnitudes just
/// above 224 become 224, which has a larger k, taking it before rounding would let a second export choose other codes.
/// Throws CheckpointError beginning with `where` if a value is not finite, before or after
/// rounding.
int e4m3_exponent(std::span<const float> values, std::string_view where);

struct RoundingCount {
  int64_t values = 0;
  int64_t rounded = 0;  // changed
  int64_t zeroed = 0;   // of these, became 0
};
/// Codes of `values`, rounded to nearest even, into `out`; adds to `count`.
void encode_e4m3(std::span<const float> values, int exponent, std::byte* out, RoundingCount& count);

}  // namespace esm::train
