// Small random models.
#pragma once
#include <cmath>

#include "base/philox.h"
#include "models/esm2.h"
#include "support/torch.h"

namespace esm::test {

/// Products of normalized rows with random matrices have this standard deviation: every term matters, and attention is
/// neither even nor on one key alone.
constexpr double kMildGain = 1.2;

/// Random weights: matrices of c columns and the embedding normal(0, gain / sqrt(c)), so that the width changes no
/// conditioning; biases normal(0, 0.15), LayerNorm weights the same around 1. With a gain of 3 and more softmaxes
/// saturate, and BF16 gradients are off by a fifth whoever computes them.
inline void randomize(models::Model& model, uint64_t seed, double gain = kMildGain) {
  model.init_parameters(seed);
  uint64_t counter = 0;
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const at::Tensor view = unit->view(nn::Role::kMaster, i), host = at::empty(view.sizes(), at::kFloat);
      float* values = host.mutable_data_ptr<float>();
      const bool is_matrix = view.dim() == 2;
      const float middle = unit->entries()[i].spec.kind == nn::ParamKind::kNormWeight ? 1.0f : 0.0f;
      const auto deviation = static_cast<float>(is_matrix ? gain / std::sqrt(static_cast<double>(view.size(1))) : 0.15);
      for (int64_t k = 0; k < view.numel(); ++k) {
        const PhiloxResult words = philox(seed, RandomStream::kSynthetic, counter++, 1);
        values[k] = middle + deviation * static_cast<float>(normal_pair(words.v[0], words.v[1])[0]);
      }
      view.copy_(host);
    }
  model.sync_compute();
}

inline models::Esm2 random_model(const Context& context, const models::Esm2Config& config,
                                 const models::ModelOptions& options, uint64_t seed = 7, double gain = kMildGain) {
  models::Esm2 model(context, config, options);
  randomize(model, seed, gain);
  return model;
}

inline models::Esm2 random_model(const models::Esm2Config& config, const models::ModelOptions& options,
                                 uint64_t seed = 7, int threads = 1) {
  return random_model(Context{.threads = threads}, config, options, seed);
}

inline models::Esm2Config small_config(int64_t layers, int64_t heads, int64_t head_dim) {
  models::Esm2Config config;
  config.layers = layers;
  config.heads = heads;
  config.hidden = heads * head_dim;
  return config;
}

/// The flat buffer of each unit.
inline std::vector<std::vector<uint8_t>> unit_bytes(models::Model& model, nn::Role role) {
  std::vector<std::vector<uint8_t>> result;
  for (nn::UnitStorage* unit : model.units()) result.push_back(bytes(unit->flat(role)));
  return result;
}

inline std::vector<std::vector<uint8_t>> gradient_bytes(models::Model& model) {
  return unit_bytes(model, nn::Role::kGrad);
}

}  // namespace esm::test
