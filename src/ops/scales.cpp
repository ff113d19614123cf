#include "ops/scales.h"

#include <algorithm>
#include <cstring>

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/place.h"
#include "precision/amax_history.h"

namespace esm::ops {

Scales::Scales(const Context& context, int64_t history_steps) : context_(context), history_steps_(history_steps) {}

int64_t Scales::add(std::string name, const kernels::DelayedRule& rule, precision::Timing timing) {
  ESM_CHECK(!history_.defined(), "a scale is declared late: {}", name);
  names_.push_back(std::move(name));
  rules_.push_back(rule);
  current_.push_back(timing == precision::Timing::kCurrent);
  return size() - 1;
}

void Scales::allocate() {
  if (size() == 0) return;
  const at::TensorOptions floats = options(context_, at::kFloat);
  const bool delayed = std::find(current_.begin(), current_.end(), false) != current_.end();
  if (!delayed) history_steps_ = 1;
  history_ = at::zeros({size(), history_steps_}, floats);
  pending_ = at::zeros({size()}, floats);
  amax_ = at::zeros({size()}, floats);
  scale_ = at::zeros({size()}, floats);
  inverse_ = at::zeros({size(), kernels::kInverseStride}, floats);
  nonfinite_ = at::zeros({size()}, options(context_, at::kInt));
  closed_ = at::zeros({1}, options(context_, at::kLong));
  if (!context_.on_cuda()) return;
  const at::Tensor rules = at::empty({static_cast<int64_t>(rules_.size() * sizeof(kernels::DelayedRule))}, at::kByte);
  std::memcpy(rules.data_ptr(), rules_.data(), rules.nbytes());
  device_rules_ = rules.to(device_of(context_));
  arrived_ = at::zeros({1}, options(context_, at::kInt));
}

kernels::AmaxTables Scales::tables() const {
  return {.tensors = size(),
          .steps = history_steps_,
          .history = static_cast<float*>(history_.data_ptr()),
          .pending = static_cast<float*>(pending_.data_ptr()),
          .scale = static_cast<float*>(scale_.data_ptr()),
          .inverse = static_cast<float*>(inverse_.data_ptr()),
          .nonfinite = static_cast<int32_t*>(nonfinite_.data_ptr()),
          .closed = static_cast<int64_t*>(closed_.data_ptr())};
}

void Scales::begin_step() {
  if (size() > 0) pending_.zero_();
}

void Scales::begin_micro_batch(Pass pass) {
  recording_ = pass == Pass::kTraining;
  if (size() > 0) amax_.zero_();
}

void Scales::end_micro_batch() {
  ESM_CHECK(recording_, "an evaluation has no part in a step");
  if (size() == 0) return;
  pending_.view(at::kInt).clamp_min_(amax_.view(at::kInt));  // a maximum of the bits, so that NaN stays
}

void Scales::close_step() {
  if (size() == 0) return;
  if (context_.on_cuda())
    cuda::close_amax(context_, tables(), device_rules_, arrived_);
  else
    precision::close_step(tables(), rules_, closed_steps_);
  ++closed_steps_;
}

TensorScale Scales::at(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const bool measure = current_[i] || measuring();
  return {.scale = scale_.narrow(0, index, 1),
          .inverse = inverse_.select(0, index).narrow(0, 0, 1),
          .amax = measure || recording_ ? amax_.narrow(0, index, 1) : at::Tensor(),
          .measure = measure,
          .greatest = rules_[i].greatest,
          .margin = rules_[i].margin};
}

std::vector<std::pair<std::string, at::Tensor>> Scales::state() const {
  if (size() == 0) return {};
  return {{"amax.history", history_},
          {"amax.scale", scale_},
          {"amax.inverse", inverse_},
          {"amax.nonfinite", nonfinite_},
          {"amax.steps", closed_}};
}

void Scales::state_restored() {
  if (size() == 0) return;
  closed_steps_ = *static_cast<const int64_t*>(closed_.cpu().data_ptr());
  ESM_CHECK(closed_steps_ >= 0, "amax histories of {} closed steps", closed_steps_);
  pending_.zero_();
}

MemoryPart Scales::memory() const {
  MemoryPart part{.name = "scales"};
  for (const at::Tensor& x : {history_, pending_, amax_, scale_, inverse_, nonfinite_}) part.add(x);
  return part;
}

}  // namespace esm::ops
