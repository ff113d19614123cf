#include "train/optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "ops/place.h"

namespace esm::train {

using nn::Role;

namespace {

bool is_norm_or_bias(nn::ParamKind kind) {
  switch (kind) {
    case nn::ParamKind::kMatrix:
    case nn::ParamKind::kEmbedding: return false;
    case nn::ParamKind::kBias:
    case nn::ParamKind::kNormWeight:
    case nn::ParamKind::kNormBias: return true;
  }
  return false;
}

// "layers.1" is a prefix of "layers.1.ffn..." and not of "layers.10...".
bool is_name_prefix(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) &&
         (name.size() == prefix.size() || prefix.empty() || prefix.back() == '.' || name[prefix.size()] == '.');
}

std::vector<at::Tensor> gradients_of(std::span<nn::UnitStorage* const> units) {
  std::vector<at::Tensor> gradients;
  for (const nn::UnitStorage* unit : units) gradients.push_back(unit->flat(Role::kGrad));
  return gradients;
}

}  // namespace

Optimizer::Optimizer(const Context& context, std::span<nn::UnitStorage* const> units, const OptimizerSection& config,
                     const Options& options)
    : context_(context),
      config_(config),
      seed_(options.seed),
      multipliers_(config.lr_multipliers.begin(), config.lr_multipliers.end()),
      control_(context, gradients_of(units)),
      replay_(context, options.graphs) {
  std::vector<bool> prefix_used(multipliers_.size(), false);
  int64_t first = 0;
  for (nn::UnitStorage* unit : units) {
    unit->allocate_moments();
    units_.push_back(make_unit(*unit, prefix_used));
    units_.back().first = first;
    // Without the padding of vocabularies, which differs from device to device.
    for (const nn::ParamEntry& entry : unit->entries()) first += round_up(entry.numel, nn::UnitStorage::kAlignment);
  }
  for (size_t i = 0; i < multipliers_.size(); ++i)
    if (!prefix_used[i])
      fail<ConfigError>(
          "optimizer.lr_multipliers: no parameter's name begins with '{}'; names look like "
          "embedding.weight, layers.0.attention.qkv.weight, final_norm.weight, head.dense.weight",
          multipliers_[i].first);
}

ops::AdamWGroup Optimizer::group_of(const nn::ParamSpec& spec, std::vector<bool>& prefix_used) const {
  ops::AdamWGroup group{.weight_decay = config_.weight_decay};
  size_t longest = 0;
  for (size_t k = 0; k < multipliers_.size(); ++k) {
    const auto& [prefix, factor] = multipliers_[k];
    if (!is_name_prefix(prefix, spec.name)) continue;
    prefix_used[k] = true;
    if (prefix.size() >= longest) group.lr_factor = factor;
    longest = std::max(longest, prefix.size());
  }
  if (!config_.decay_norms_and_biases && is_norm_or_bias(spec.kind)) group.weight_decay = 0;
  return group;
}

Optimizer::Unit Optimizer::make_unit(nn::UnitStorage& storage, std::vector<bool>& prefix_used) const {
  constexpr int64_t kBlock = ops::AdamWArgs::kGroupElements;
  static_assert(nn::UnitStorage::kAlignment % kBlock == 0);
  Unit unit{
      .storage = &storage, .group = {}, .groups = at::zeros({storage.flat_numel() / kBlock}, at::kByte), .first = 0};
  const auto& entries = storage.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    const ops::AdamWGroup group = group_of(entries[i].spec, prefix_used);
    const auto known = std::find(unit.group.begin(), unit.group.end(), group);
    unit.groups.narrow(0, entries[i].offset / kBlock, entries[i].extent / kBlock).fill_(known - unit.group.begin());
    if (known == unit.group.end()) unit.group.push_back(group);
  }
  unit.groups = unit.groups.to(ops::device_of(context_));
  return unit;
}

void Optimizer::update(const at::Tensor& loss_sums, double lr, double clip_norm) {
  control_.set_lr(lr);
  replay_.run({reinterpret_cast<int64_t>(loss_sums.data_ptr())}, [&] {
    control_.sum_squares();
    control_.decide(loss_sums, {.max_norm = clip_norm, .beta1 = config_.beta1, .beta2 = config_.beta2});
    for (const Unit& unit : units_) {
      const nn::UnitStorage& storage = *unit.storage;
      const auto flat = [&](Role role) { return storage.has(role) ? storage.flat(role) : at::Tensor(); };
      ops::adamw(context_, {.formats = storage.formats(),
                            .master = flat(Role::kMaster),
                            .compute = storage.has_compute_copy() ? flat(Role::kCompute) : at::Tensor(),
                            .remainder = flat(Role::kRemainder),
                            .grad = flat(Role::kGrad),
                            .exp_avg = flat(Role::kExpAvg),
                            .exp_avg_sq = flat(Role::kExpAvgSq),
                            .exp_avg_scale = flat(Role::kExpAvgScale),
                            .exp_avg_sq_scale = flat(Role::kExpAvgSqScale),
                            .numbers = control_.numbers(),
                            .groups = unit.groups,
                            .group = unit.group,
                            .beta1 = config_.beta1,
                            .beta2 = config_.beta2,
                            .eps = config_.eps,
                            .seed = seed_,
                            .random_offset = unit.first});
    }
  });
}

std::string Optimizer::parameter_at(uint64_t place) const {
  if (place == kernels::kAllFinite) return "";
  const nn::UnitStorage& unit = *units_.at(place >> kernels::kBufferShift).storage;
  const auto element = static_cast<int64_t>(place & ((uint64_t{1} << kernels::kBufferShift) - 1));
  std::string name;
  for (const nn::ParamEntry& entry : unit.entries())
    if (entry.offset <= element && element < entry.offset + entry.extent) name = entry.spec.name;
  return name;
}

}  // namespace esm::train
