#include "train/fp8_watch.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/check.h"
#include "precision/amax_history.h"
#include "train/step.h"

namespace esm::train {
namespace {

/// "layers.3.attention.qkv.x" -> "layers.3", "qkv.x".
std::pair<std::string, std::string> parts_of(const std::string& name) {
  const size_t layer_end = name.find('.', name.find('.') + 1), operand = name.rfind('.'),
               linear = name.rfind('.', operand - 1);
  return {name.substr(0, layer_end), name.substr(linear + 1)};
}

int64_t encoder_layers(models::Model& model) { return std::ssize(model.units()) - 2; }

}  // namespace

Fp8Watch::Fp8Watch(const Context& context, models::Model& model, int64_t every_steps)
    : model_(model),
      scales_(model.scales()),
      every_steps_(model.watched().empty() ? 0 : every_steps),
      layers_(encoder_layers(model)) {
  if (every_steps_ > 0) {
    const int64_t scales = scales_ != nullptr ? scales_->size() : 0;
    const int64_t values = 2 * scales + 3 * std::ssize(model_.watched()) + 3 * layers_ + 1;
    observations_.emplace(context, values * static_cast<int64_t>(sizeof(double)), StepQueue::kSlots);
  }
  if (scales_ == nullptr) return;
  nonfinite_.emplace(context, scales_->size() * static_cast<int64_t>(sizeof(int32_t)), StepQueue::kSlots);
  const at::Tensor now = scales_->nonfinite().cpu();
  counts_.assign(static_cast<const int32_t*>(now.data_ptr()),
                 static_cast<const int32_t*>(now.data_ptr()) + scales_->size());
}

void Fp8Watch::begin_step(int64_t step) {
  step_ = step;
  watching_ = every_steps_ > 0 && step % every_steps_ == 0;
  if (every_steps_ > 0) model_.watch(watching_);
}

void Fp8Watch::queue() {
  if (watching_) observations_->push(model_.observation());
}

void Fp8Watch::finish() {
  if (nonfinite_.has_value()) nonfinite_->push(scales_->nonfinite());
  pending_.push_back({step_, watching_});
}

Fp8Watch::Seen Fp8Watch::pop(int64_t scored) {
  ESM_CHECK(!pending_.empty(), "no step is being watched");
  const Pending oldest = pending_.front();
  pending_.pop_front();
  Seen seen;
  if (oldest.watched)
    seen.statistics =
        decode(oldest.step, reinterpret_cast<const double*>(observations_->pop()), static_cast<double>(scored));
  if (!nonfinite_.has_value()) return seen;
  std::vector<int32_t> now(counts_.size());
  std::memcpy(now.data(), nonfinite_->pop(), now.size() * sizeof(int32_t));
  for (const auto& [name, count] : precision::new_nonfinite(counts_, now, scales_->names()))
    seen.nonfinite.push_back(fmt::format("{} ({})", name, count));
  counts_ = std::move(now);
  return seen;
}

StepStatistics Fp8Watch::decode(int64_t step, const double* values, double scored) const {
  StepStatistics result{.step = step};
  struct Scale {
    double amax, scale;
  };
  std::map<std::string, Scale> scales;
  if (scales_ != nullptr) {
    const int64_t n = scales_->size();
    for (int64_t i = 0; i < n; ++i) scales[scales_->names()[static_cast<size_t>(i)]] = {values[i], values[n + i]};
    values += 2 * n;
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& name : model_.watched()) {
    const auto scale = scales.find(name);
    const auto [layer, tensor] = parts_of(name);
    result.tensors.push_back({.layer = layer,
                              .tensor = tensor,
                              .amax = scale == scales.end() ? kNone : scale->second.amax,
                              .scale = scale == scales.end() ? kNone : scale->second.scale,
                              .underflow = values[0] / values[2],
                              .overflow = values[1] / values[2]});
    values += 3;
  }
  const double elements = values[3 * layers_];
  for (int64_t l = 0; l < layers_; ++l, values += 3) {
    const double mean = values[0] / elements;
    result.layers.push_back({.layer = fmt::format("layers.{}", l),
                             .mean = mean,
                             .variance = values[1] / elements - mean * mean,
                             .grad_norm = values[2] / scored});
  }
  return result;
}

}  // namespace esm::train
