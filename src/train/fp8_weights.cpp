#include "train/fp8_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/fp8_scale.h"

namespace esm::train {
using checkpoint::SafetensorsSet;
using checkpoint::TensorRef;
namespace {
constexpr std::string_view kSuffix = "_scale";
}  // namespace

std::string scale_name(std::string_view weight) { return std::string(weight) + std::string(kSuffix); }

bool is_scale_name(std::string_view name) { return name.ends_with("weight_scale"); }

bool is_layer_matrix(const models::ForeignTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.native.starts_with("layers.");
}

bool may_have_8_bits(const models::ForeignTensor& tensor) {
  return is_layer_matrix(tensor) || tensor.native == "head.dense.weight";
}

float read_scale(const SafetensorsSet& files, const TensorRef& weight) {
  const std::string name = scale_name(weight.name);
  const TensorRef* scale = files.find(name);
  if (scale == nullptr)
    fail<CheckpointError>("tensor '{}' is {} and needs its factor '{}' (F32 [1]), which is missing", weight.name,
                          dtype_name(weight.dtype), name);
  if (scale->dtype != DType::kF32 || scale->shape != std::vector<int64_t>{1})
    fail<CheckpointError>("tensor '{}' is {} {}; the factor of '{}' must be F32 [1]", name, dtype_name(scale->dtype),
                          checkpoint::shape_text(scale->shape), weight.name);
  float value = 0;
  std::memcpy(&value, scale->bytes.data(), sizeof value);
  if (!std::isfinite(value) || !(value > 0))
    fail<CheckpointError>("tensor '{}' is {}; a finite factor above 0 is wanted", name, value);
  return value;
}

void check_scales_have_weights(const SafetensorsSet& files) {
  for (const TensorRef* tensor : files.tensors()) {
    if (!is_scale_name(tensor->name)) continue;
    const std::string weight = tensor->name.substr(0, tensor->name.size() - kSuffix.size());
    const TensorRef* found = files.find(weight);
    if (found == nullptr)
      fail<CheckpointError>("tensor '{}' is the factor of '{}', which is missing", tensor->name, weight);
    if (found->dtype != DType::kF8E4M3)
      fail<CheckpointError>("tensor '{}' is the factor of '{}', which is {} where F8_E4M3 is wanted", tensor->name,
                            weight, dtype_name(found->dtype));
  }
}

int e4m3_exponent(std::span<const float> values, std::string_view where) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, kernels::amax_bits(value));
  const float amax = kernels::float_of(largest);
  const bool finite = kernels::is_finite_amax(amax);
  const float scale = kernels::power_of_two(finite ? kernels::scale_exponent(amax, kernels::kMaxE4M3, 0) : 0);
  const float rounded = kernels::from_e4m3(kernels::encode_e4m3(amax * scale)) * kernels::inverse_power(scale);
  // The last values of FP32 would be rounded up to 2^128.
  if (!finite || !std::isfinite(rounded))
    fail<CheckpointError>("{} holds NaN, infinity or values above 3.2e38: it cannot be exported in 8 bits", where);
  return kernels::scale_exponent(rounded, kernels::kMaxE4M3, 0);
}

void encode_e4m3(std::span<const float> values, int exponent, std::byte* out, RoundingCount& count) {
  const float scale = kernels::power_of_two(exponent), inverse = kernels::inverse_power(scale);
  for (const float value : values) {
    const uint32_t code = kernels::encode_e4m3(value * scale);
    const float kept = kernels::from_e4m3(code) * inverse;
    count.rounded += kept != value;
    count.zeroed += kept == 0 && value != 0;
    *out++ = static_cast<std::byte>(code);
  }
  count.values += static_cast<int64_t>(values.size());
}

}  // namespace esm::train
