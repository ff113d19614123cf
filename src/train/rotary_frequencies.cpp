// Rotary inverse frequencies of a model on disk: which rule reproduces them.
#include <cmath>

#include "base/check.h"
#include "base/half.h"
#include "train/model_source.h"
#include "train/tensor_rows.h"

namespace esm::train {
using checkpoint::TensorOut;
namespace {

// 10000^(-2i/d), as ops::rotary_inv_freq computes it.
std::vector<float> computed_inv_freq(int64_t head_dim) {
  std::vector<float> values;
  for (int64_t i = 0; i < head_dim; i += 2)
    values.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(head_dim))));
  return values;
}

// Equal within the last bits of a float: Hugging Face computes in FP32, and libraries' pow() differ.
bool nearly_equal(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 4e-7f * std::abs(b[i]))) return false;
  return true;
}

std::vector<float> rounded_to_fp16(std::vector<float> values) {
  for (float& value : values) value = float_from_fp16(fp16_from_float(value));
  return values;
}

}  // namespace

bool is_inv_freq_name(std::string_view name) {
  return name.ends_with("rotary_embeddings.inv_freq") || name.ends_with("rot_emb.inv_freq");
}

void find_inv_freq(ModelSource::Impl& impl) {
  const int64_t head_dim = impl.config.head_dim();
  for (const TensorOut& tensor : impl.passthrough) {
    if (!impl.side_file_of(tensor.name).empty() || !is_inv_freq_name(tensor.name)) continue;
    if (!is_weight_dtype(tensor.dtype) || tensor.shape != std::vector<int64_t>{head_dim / 2})
      fail<CheckpointError>("{}: '{}' is {} {}, heads of {} have {} frequencies", impl.path, tensor.name,
                            dtype_name(tensor.dtype), checkpoint::shape_text(tensor.shape), head_dim, head_dim / 2);
    std::vector<float> values(static_cast<size_t>(head_dim / 2));
    to_floats(tensor.bytes, tensor.dtype, values);
    if (!impl.inv_freq.empty() && impl.inv_freq != values)
      fail<CheckpointError>("{}: '{}' differs from that of another layer, which is not supported", impl.path,
                            tensor.name);
    impl.inv_freq = std::move(values);
  }
}

models::InvFreq rule_of_inv_freq(const std::vector<float>& values, int64_t head_dim) {
  if (values.empty()) return models::InvFreq::kFp32;
  const std::vector<float> computed = computed_inv_freq(head_dim);
  if (nearly_equal(values, computed)) return models::InvFreq::kFp32;
  return values == rounded_to_fp16(computed) ? models::InvFreq::kFp16Rounded : models::InvFreq::kFile;
}

std::vector<float> ModelSource::Impl::rotary_frequencies() const {
  switch (config.inv_freq) {
    case models::InvFreq::kFp32: return computed_inv_freq(config.head_dim());
    case models::InvFreq::kFp16Rounded: return rounded_to_fp16(computed_inv_freq(config.head_dim()));
    case models::InvFreq::kFile: return inv_freq;
  }
  return {};
}

}  // namespace esm::train
