#include "parity/oracle.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "support/torch.h"

namespace esm::test {

Oracle::Oracle(models::Esm2& model, DType storage)
    : config_(model.config()), storage_(storage), inv_freq_(model.inv_freq()) {
  ESM_CHECK(storage == DType::kF64 || storage == DType::kBF16, "an oracle in {}", dtype_name(storage));
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const std::string& name = unit->entries()[i].spec.name;
      at::Tensor leaf = unit->view(nn::Role::kMaster, i).cpu().to(at::kDouble).clone();
      if (name != "head.bias") leaf = stored(leaf);  // that one meets FP32 logits as it is
      parameters_[name] = leaf.requires_grad_(true);
    }
}

// The gradient goes through the same two casts.
at::Tensor Oracle::stored(const at::Tensor& x) const {
  return storage_ == DType::kBF16 ? x.to(at::kBFloat16).to(at::kDouble) : x;
}

/// The gradient alone is rounded.
at::Tensor Oracle::gradient_stored(const at::Tensor& x) const {
  const at::Tensor rounded = stored(x);
  return rounded.add(x.sub(rounded).detach());
}

std::vector<double> Oracle::gradient(const std::string& name) const {
  const at::Tensor& leaf = parameters_.at(name);
  return leaf.grad().defined() ? values(leaf.grad()) : std::vector<double>(leaf.numel(), 0.0);
}

at::Tensor Oracle::layer_norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor centered = x.sub(x.mean(-1, true));
  const at::Tensor rstd = centered.square().mean(-1, true).add(config_.layer_norm_eps).rsqrt();
  return stored(centered.mul(rstd).mul(parameters_.at(name + ".weight")).add(parameters_.at(name + ".bias")));
}

at::Tensor Oracle::linear(const at::Tensor& x, const std::string& name) const {
  return x.matmul(parameters_.at(name + ".weight").t()).add(parameters_.at(name + ".bias"));
}

// x [H, n, K].
at::Tensor Oracle::rotate(const at::Tensor& x, int64_t first_position) const {
  const at::Tensor position = at::arange(first_position, first_position + x.size(1), at::kDouble);
  const std::vector<double> freq(inv_freq_.begin(), inv_freq_.end());
  const at::Tensor angle = position.unsqueeze(1).mul(at::tensor(freq, at::kDouble).unsqueeze(0));
  const int64_t k = x.size(2) / 2;
  const bool neighbours = fault == Fault::kRotaryPairs;
  const at::Tensor pairs = neighbours ? x.reshape({x.size(0), x.size(1), k, 2}).transpose(2, 3).flatten(2) : x;
  const at::Tensor a = pairs.narrow(2, 0, k), b = pairs.narrow(2, k, k);
  return at::cat({a.mul(angle.cos()).sub(b.mul(angle.sin())), b.mul(angle.cos()).add(a.mul(angle.sin()))}, 2);
}

at::Tensor Oracle::gelu(const at::Tensor& x, models::Activation form) const {
  if (form == models::Activation::kGeluErf) return x.mul(0.5).mul(x.div(std::numbers::sqrt2).erf().add(1.0));
  const at::Tensor inner = x.add(x.pow(3).mul(0.044715)).mul(std::sqrt(2.0 / std::numbers::pi));
  return x.mul(0.5).mul(inner.tanh().add(1.0));
}

at::Tensor Oracle::encoder_layer(const at::Tensor& x, int64_t layer) const {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const int64_t n = x.size(0), heads = config_.heads, k = config_.head_dim();
  const at::Tensor qkv = stored(linear(layer_norm(x, prefix + "attention_norm"), prefix + "attention.qkv"));
  const auto part = [&](int64_t which) {
    return qkv.narrow(1, which * config_.hidden, config_.hidden).reshape({n, heads, k}).transpose(0, 1);
  };
  const double scale = fault == Fault::kNoQueryScale ? 1.0 : 1.0 / std::sqrt(static_cast<double>(k));
  const at::Tensor q = stored(rotate(part(0), 0));
  const at::Tensor key = stored(rotate(part(1), fault == Fault::kKeyPositions ? 1 : 0));
  const at::Tensor scores = gradient_stored(q.mul(scale).matmul(key.transpose(1, 2)));
  const at::Tensor p = stored(scores.softmax(-1));
  const at::Tensor mixed = stored(p.matmul(part(2)).transpose(0, 1).reshape({n, config_.hidden}));
  const at::Tensor x1 = stored(x.add(linear(mixed, prefix + "attention.out")));
  const bool other = fault == Fault::kTanhGelu;
  const bool exact = (config_.activation == models::Activation::kGeluErf) != other;
  const at::Tensor h = stored(linear(layer_norm(x1, prefix + "ffn_norm"), prefix + "ffn.fc1"));
  const at::Tensor act = stored(gelu(h, exact ? models::Activation::kGeluErf : models::Activation::kGeluTanh));
  return stored(x1.add(linear(act, prefix + "ffn.fc2")));
}

at::Tensor Oracle::logits(const std::vector<int64_t>& tokens) const {
  const at::Tensor& table = parameters_.at("embedding.weight");
  const at::Tensor ids = at::tensor(tokens, at::kLong);
  at::Tensor x = table.index_select(0, ids);
  if (config_.token_dropout && fault != Fault::kNoTokenDropout) {
    const at::Tensor masked = ids.eq(32);
    const double share = masked.sum().item<double>() / static_cast<double>(tokens.size());
    x = x.masked_fill(masked.unsqueeze(1), 0.0).mul(share < 1 ? (1 - 0.15 * 0.8) / (1 - share) : 0.0);
  }
  x = stored(x);
  for (int64_t layer = 0; layer < config_.layers; ++layer) x = encoder_layer(x, layer);
  const at::Tensor y = stored(linear(layer_norm(x, "final_norm"), "head.dense"));
  const at::Tensor z = layer_norm(stored(gelu(y, models::Activation::kGeluErf)), "head.norm");
  return gradient_stored(z.matmul(table.t()).add(parameters_.at("head.bias")));
}

Oracle::Result Oracle::run(const data::Batch& batch, double label_smoothing) {
  for (auto& [name, leaf] : parameters_) leaf.mutable_grad().reset();
  Result result;
  size_t scored = 0;
  std::vector<int64_t> before;  // tokens of earlier sequences, for the planted leak
  for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
    if (batch.is_dummy[s] != 0) continue;
    std::vector<int64_t> tokens = fault == Fault::kLeak ? before : std::vector<int64_t>();
    const int64_t shift = static_cast<int64_t>(tokens.size()) - batch.cu_seqlens[s];
    tokens.insert(tokens.end(), batch.tokens.begin() + batch.cu_seqlens[s],
                  batch.tokens.begin() + batch.cu_seqlens[s + 1]);
    before = tokens;
    const at::Tensor all = logits(tokens);
    result.logits.push_back(values(all));
    std::vector<int64_t> rows, targets;
    for (; scored < batch.scored_rows.size() && batch.scored_rows[scored] < batch.cu_seqlens[s + 1]; ++scored) {
      rows.push_back(batch.scored_rows[scored] + shift);
      targets.push_back(batch.targets[scored]);
    }
    if (rows.empty()) continue;
    const at::Tensor log_p = all.index_select(0, at::tensor(rows, at::kLong)).log_softmax(-1);
    const at::Tensor own = log_p.gather(1, at::tensor(targets, at::kLong).unsqueeze(1)).sum();
    const at::Tensor loss = own.mul(label_smoothing - 1).sub(log_p.mean(-1).sum().mul(label_smoothing));
    result.loss_sum += loss.item<double>();
    loss.backward();
  }
  return result;
}

}  // namespace esm::test
