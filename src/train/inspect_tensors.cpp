// Figures of tensors, and how two models differ.
#include <bit>
#include <cmath>
#include <set>

#include "base/check.h"
#include "config/config.h"
#include "train/fp8_weights.h"
#include "train/inspect.h"
#include "train/model_source.h"
#include "train/run_config.h"
#include "train/tensor_rows.h"

namespace esm::train {
using checkpoint::element_count;
using checkpoint::TensorRef;
namespace {

TensorSummary summary_of(const TensorRef& tensor, float factor) {
  TensorSummary summary{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .values = {}};
  if (!is_weight_dtype(tensor.dtype) && tensor.dtype != DType::kF8E4M3) return summary;
  std::vector<float> values(static_cast<size_t>(element_count(tensor.shape)));
  to_floats(tensor.bytes, tensor.dtype, values);
  if (factor != 1)
    for (float& value : values) value *= factor;
  summary.values = summarize(values);
  return summary;
}

void add_file(const checkpoint::SafetensorsFile& file, const checkpoint::SafetensorsSet* set,
              std::vector<TensorSummary>& out) {
  for (const TensorRef& tensor : file.tensors()) {
    const bool scaled =
        set != nullptr && tensor.dtype == DType::kF8E4M3 && set->find(scale_name(tensor.name)) != nullptr;
    out.push_back(summary_of(tensor, scaled ? read_scale(*set, tensor) : 1.0f));
  }
}

// Every key with its value, as a config that some version of the program wrote has it.
template <class C>
std::map<std::string, std::string> setting_values(const std::string& yaml) {
  const C defaults;
  std::map<std::string, std::string> values;
  for (const config::Entry& entry : config::entries(defaults)) values[entry.key] = entry.value;
  try {
    for (const config::Difference& d : config::diff(yaml, defaults)) {
      if (d.side == config::Difference::Side::kOnlyNew)
        values.erase(d.key);
      else
        values[d.key] = d.old_value;
    }
  } catch (const ConfigError& e) {
    fail<CheckpointError>("{}", e.what());
  }
  return values;
}

template <class C>
std::vector<SettingDifference> differing_settings(const std::string& yaml_a, const std::string& yaml_b,
                                                  const std::string& prefix) {
  const auto a = setting_values<C>(yaml_a), b = setting_values<C>(yaml_b);
  const auto value = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto it = values.find(key);
    return it == values.end() ? std::optional<std::string>{} : it->second;
  };
  std::set<std::string> keys;
  for (const auto* values : {&a, &b})
    for (const auto& [key, ignored] : *values) keys.insert(key);
  std::vector<SettingDifference> result;
  for (const std::string& key : keys)
    if (value(a, key) != value(b, key)) result.push_back({prefix + key, value(a, key), value(b, key)});
  return result;
}

std::string run_config_of(const Inspection& inspection) {
  return inspection.own.has_value() ? inspection.own->manifest.config_yaml : "";
}

void compare_tensors(const ModelSource& a, const ModelSource& b, Comparison& result) {
  std::map<std::string, std::vector<int64_t>> in_b;
  for (const ModelTensor& tensor : b.tensors()) in_b[tensor.name] = tensor.shape;
  for (const ModelTensor& tensor : a.tensors()) {
    TensorDifference found{.name = tensor.name, .shape_a = tensor.shape, .shape_b = {}, .values = {}};
    if (const auto it = in_b.find(tensor.name); it != in_b.end()) {
      found.shape_b = it->second;
      in_b.erase(it);
    }
    if (found.shape_a == found.shape_b) {
      found.values = difference(a.read(tensor.name), b.read(tensor.name));
      if (found.values->differing == 0) {
        ++result.equal_tensors;
        continue;
      }
    }
    result.tensors.push_back(std::move(found));
  }
  for (const ModelTensor& tensor : b.tensors())
    if (in_b.contains(tensor.name))
      result.tensors.push_back({.name = tensor.name, .shape_a = {}, .shape_b = tensor.shape, .values = {}});
}

}  // namespace

ValueSummary summarize(std::span<const float> values) {
  ValueSummary result;
  double squares = 0, sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      ++result.not_finite;
      continue;
    }
    squares += value * value;
    sum += value;
    result.abs_max = std::max(result.abs_max, std::abs(value));
  }
  result.norm = std::sqrt(squares);
  const auto finite = static_cast<int64_t>(values.size()) - result.not_finite;
  if (finite > 0) result.mean = sum / static_cast<double>(finite);
  return result;
}

std::vector<TensorSummary> summarize_tensors(const ModelSource& source) {
  const ModelSource::Impl& impl = source.impl();
  std::vector<TensorSummary> result;
  if (impl.checkpoint.has_value())
    for (const checkpoint::SafetensorsFile& file : impl.checkpoint->files()) add_file(file, nullptr, result);
  if (impl.files.has_value())
    for (const checkpoint::SafetensorsFile& file : impl.files->files()) add_file(file, &*impl.files, result);
  for (const checkpoint::SafetensorsFile& file : impl.side_files) add_file(file, nullptr, result);
  for (const checkpoint::TorchFile& file : impl.torch_files)
    for (const TensorRef& tensor : file.tensors()) result.push_back(summary_of(tensor, 1.0f));
  return result;
}

ValueDifference difference(std::span<const float> a, std::span<const float> b) {
  ESM_CHECK(a.size() == b.size(), "{} values are compared with {}", a.size(), b.size());
  ValueDifference result;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) ++result.differing;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      ++result.not_finite;
      continue;
    }
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += d * d;
    result.max_abs = std::max(result.max_abs, std::abs(d));
  }
  result.norm = std::sqrt(squares);
  result.norm_a = summarize(a).norm;
  result.norm_b = summarize(b).norm;
  return result;
}

std::vector<SettingDifference> compare_settings(const std::string& yaml_a, const std::string& yaml_b) {
  return differing_settings<RunConfig>(yaml_a, yaml_b, "");
}

Comparison compare(const Inspection& a, const Inspection& b) {
  for (const Inspection* one : {&a, &b})
    if (!one->source.has_value()) fail<CheckpointError>("{}", one->problems.front());
  Comparison result;
  result.whole_config = !run_config_of(a).empty() && !run_config_of(b).empty();
  result.settings = result.whole_config
                        ? compare_settings(run_config_of(a), run_config_of(b))
                        : differing_settings<models::Esm2Config>(config::to_yaml(a.source->config()),
                                                                 config::to_yaml(b.source->config()), "model.");
  compare_tensors(*a.source, *b.source, result);
  return result;
}

}  // namespace esm::train
