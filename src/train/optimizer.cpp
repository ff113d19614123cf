#include "train/optimizer.h"

#include <cmath>

#include "base/check.h"
#include "base/narrow.h"
#include "ops/adamw.h"
#include "ops/grad_norm.h"

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

}  // namespace

Optimizer::Optimizer(const Context& context, std::span<nn::UnitStorage* const> units, const OptimizerSection& config)
    : context_(context),
      units_(units.begin(), units.end()),
      config_(config),
      multipliers_(config.lr_multipliers.begin(), config.lr_multipliers.end()) {
  std::vector<bool> prefix_used(multipliers_.size(), false);
  for (nn::UnitStorage* unit : units_) {
    unit->allocate(Role::kExpAvg);
    unit->allocate(Role::kExpAvgSq);
    add_runs(*unit, prefix_used);
  }
  for (size_t i = 0; i < multipliers_.size(); ++i)
    if (!prefix_used[i])
      fail<ConfigError>(
          "optimizer.lr_multipliers: no parameter's name begins with '{}'; names look like "
          "embedding.weight, layers.0.attention.qkv.weight, final_norm.weight, head.dense.weight",
          multipliers_[i].first);
}

void Optimizer::add_runs(nn::UnitStorage& unit, std::vector<bool>& prefix_used) {
  const size_t first = runs_.size();
  const auto& entries = unit.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    Run run{&unit, entries[i].offset, i + 1 < entries.size() ? entries[i + 1].offset : unit.flat_numel(), 1.0,
            config_.weight_decay};
    size_t longest = 0;
    for (size_t k = 0; k < multipliers_.size(); ++k) {
      const auto& [prefix, factor] = multipliers_[k];
      if (!is_name_prefix(prefix, entries[i].spec.name)) continue;
      prefix_used[k] = true;
      if (prefix.size() >= longest) run.lr_factor = factor;
      longest = std::max(longest, prefix.size());
    }
    if (!config_.decay_norms_and_biases && is_norm_or_bias(entries[i].spec.kind)) run.weight_decay = 0;
    if (runs_.size() > first && runs_.back().lr_factor == run.lr_factor &&
        runs_.back().weight_decay == run.weight_decay)
      runs_.back().end = run.end;
    else
      runs_.push_back(run);
  }
}

double Optimizer::grad_sum_of_squares() const {
  std::vector<at::Tensor> gradients;
  for (const nn::UnitStorage* unit : units_) gradients.push_back(unit->flat(Role::kGrad));
  return ops::sum_of_squares(context_, gradients);
}

std::string Optimizer::nonfinite_parameter() const {
  for (const nn::UnitStorage* unit : units_)
    for (const nn::ParamEntry& entry : unit->entries()) {
      const int64_t padded = round_up(entry.numel, nn::UnitStorage::kAlignment);
      if (!std::isfinite(ops::sum_of_squares(context_, unit->flat(Role::kGrad).narrow(0, entry.offset, padded))))
        return entry.spec.name;
    }
  return "";
}

void Optimizer::update(double lr, double grad_scale) {
  ++updates_;
  for (const Run& run : runs_) {
    const auto part = [&](Role role) { return run.unit->flat(role).narrow(0, run.begin, run.end - run.begin); };
    ops::adamw(context_, {.master = part(Role::kMaster),
                          .grad = part(Role::kGrad),
                          .exp_avg = part(Role::kExpAvg),
                          .exp_avg_sq = part(Role::kExpAvgSq),
                          .compute = run.unit->has_compute_copy() ? part(Role::kCompute) : at::Tensor(),
                          .lr = lr * run.lr_factor,
                          .beta1 = config_.beta1,
                          .beta2 = config_.beta2,
                          .eps = config_.eps,
                          .weight_decay = run.weight_decay,
                          .grad_scale = grad_scale,
                          .step = updates_});
  }
}

}  // namespace esm::train
