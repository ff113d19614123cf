#include "nn/lm_head.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/gelu.h"
#include "ops/linear.h"

namespace esm::nn {

std::vector<ParamSpec> LmHead::declare(const Shape& shape) {
  std::vector<ParamSpec> specs;
  LayerNorm::declare(specs, "final_norm", shape.hidden);
  Linear::declare(specs, "head.dense", shape.hidden, shape.hidden, shape.init_std);
  LayerNorm::declare(specs, "head.norm", shape.hidden);
  specs.push_back({.name = "head.bias", .shape = {shape.vocabulary}, .kind = ParamKind::kBias});
  return specs;
}

LmHead::LmHead(const UnitStorage& storage, const UnitStorage& embedding, const Shape& shape, int64_t chunk_rows,
               at::ScalarType dtype)
    : final_norm_(storage, "final_norm", shape.layer_norm_eps),
      dense_(storage, "head.dense"),
      norm_(storage, "head.norm", shape.layer_norm_eps),
      decoder_(embedding.view(Role::kCompute, "embedding.weight")),
      bias_(storage.view(Role::kCompute, "head.bias")),
      chunk_rows_(chunk_rows) {
  if (storage.has(Role::kGrad)) {
    ddecoder_ = embedding.view(Role::kGrad, "embedding.weight");
    dbias_ = storage.view(Role::kGrad, "head.bias");
  }
  const auto wide = [&] { return at::empty({chunk_rows, shape.hidden}, dtype); };
  const auto stats = [&] {
    return NormStats{at::empty({chunk_rows}, at::kFloat), at::empty({chunk_rows}, at::kFloat)};
  };
  chunk_ = {.x_ND = wide(),
            .y_ND = wide(),
            .dense_ND = wide(),
            .act_ND = wide(),
            .z_ND = wide(),
            .logits_NV = at::empty({chunk_rows, shape.vocabulary}, at::kFloat),
            .dlogits_NV = at::empty({chunk_rows, shape.vocabulary}, dtype),
            .grad_ND = wide(),
            .grad2_ND = wide(),
            .norm1 = stats(),
            .norm2 = stats()};
}

LmHead::Chunk LmHead::Chunk::narrow(int64_t rows) const {
  const auto cut = [&](const at::Tensor& x) { return x.narrow(0, 0, rows); };
  return {cut(x_ND),
          cut(y_ND),
          cut(dense_ND),
          cut(act_ND),
          cut(z_ND),
          cut(logits_NV),
          cut(dlogits_NV),
          cut(grad_ND),
          cut(grad2_ND),
          {cut(norm1.mean), cut(norm1.rstd)},
          {cut(norm2.mean), cut(norm2.rstd)}};
}

void LmHead::forward_chunk(ops::Workspace& ws, const Chunk& c) const {
  final_norm_.forward(c.x_ND, c.y_ND, c.norm1);
  dense_.forward(ws, c.y_ND, c.dense_ND);
  ops::gelu(ops::Gelu::kErf, c.dense_ND, c.act_ND);
  norm_.forward(c.act_ND, c.z_ND, c.norm2);
  ops::linear(ws, {.x = c.z_ND, .weight = decoder_, .bias = bias_, .residual = {}, .y = c.logits_NV});
}

void LmHead::backward_chunk(ops::Workspace& ws, const Chunk& c) const {
  ops::linear_dgrad(ws, {.dy = c.dlogits_NV, .weight = decoder_, .dx = c.grad_ND});
  ops::linear_wgrad(ws, {.dy = c.dlogits_NV, .x = c.z_ND, .dweight = ddecoder_, .dbias = dbias_});
  norm_.backward(ws, {.x = c.act_ND, .stats = c.norm2, .dy = c.grad_ND, .dx = c.grad2_ND, .y = {}});
  ops::gelu_backward(ops::Gelu::kErf, {.x = c.dense_ND, .dy = c.grad2_ND, .dx = c.grad2_ND, .y = {}});
  dense_.dgrad(ws, c.grad2_ND, c.grad_ND);
  dense_.wgrad(ws, c.grad2_ND, c.y_ND);
  final_norm_.backward(ws, {.x = c.x_ND, .stats = c.norm1, .dy = c.grad_ND, .dx = c.grad2_ND, .y = {}});
}

ops::CrossEntropyResult LmHead::loss(ops::Workspace& ws, const at::Tensor& x, const Scored& scored) {
  ops::CrossEntropyResult total;
  for (size_t begin = 0; begin < scored.rows.size(); begin += chunk_rows_) {
    const size_t rows = std::min<size_t>(chunk_rows_, scored.rows.size() - begin);
    const Chunk c = chunk_.narrow(static_cast<int64_t>(rows));
    ops::gather_rows(x, scored.rows.subspan(begin, rows), c.x_ND);
    forward_chunk(ws, c);
    total += ops::cross_entropy(
        {.logits = c.logits_NV, .targets = scored.targets.subspan(begin, rows), .label_smoothing = 0, .dlogits = {}});
  }
  return total;
}

ops::CrossEntropyResult LmHead::loss_and_gradient(ops::Workspace& ws, const at::Tensor& x, const Scored& scored,
                                                  double label_smoothing, const at::Tensor& dx) {
  ops::CrossEntropyResult total;
  for (size_t begin = 0; begin < scored.rows.size(); begin += chunk_rows_) {
    const size_t rows = std::min<size_t>(chunk_rows_, scored.rows.size() - begin);
    const Chunk c = chunk_.narrow(static_cast<int64_t>(rows));
    ops::gather_rows(x, scored.rows.subspan(begin, rows), c.x_ND);
    forward_chunk(ws, c);
    total += ops::cross_entropy({.logits = c.logits_NV,
                                 .targets = scored.targets.subspan(begin, rows),
                                 .label_smoothing = label_smoothing,
                                 .dlogits = c.dlogits_NV});
    backward_chunk(ws, c);
    ops::scatter_rows(c.grad2_ND, scored.rows.subspan(begin, rows), dx);
  }
  return total;
}

void LmHead::final_norm(const at::Tensor& x, const at::Tensor& y) const {
  const int64_t rows = x.size(0);
  final_norm_.forward(x, y, {at::empty({rows}, at::kFloat), at::empty({rows}, at::kFloat)});
}

void LmHead::logits(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& logits) {
  std::vector<int32_t> rows(x.size(0));
  std::iota(rows.begin(), rows.end(), 0);
  for (size_t begin = 0; begin < rows.size(); begin += chunk_rows_) {
    const size_t count = std::min<size_t>(chunk_rows_, rows.size() - begin);
    const std::span<const int32_t> some = std::span(rows).subspan(begin, count);
    const Chunk c = chunk_.narrow(static_cast<int64_t>(count));
    ops::gather_rows(x, some, c.x_ND);
    forward_chunk(ws, c);
    ops::scatter_rows(c.logits_NV, some, logits);
  }
}

int64_t LmHead::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& x :
       {chunk_.x_ND, chunk_.y_ND, chunk_.dense_ND, chunk_.act_ND, chunk_.z_ND, chunk_.logits_NV, chunk_.dlogits_NV,
        chunk_.grad_ND, chunk_.grad2_ND, chunk_.norm1.mean, chunk_.norm1.rstd, chunk_.norm2.mean, chunk_.norm2.rstd})
    total += x.numel() * static_cast<int64_t>(x.element_size());
  return total;
}

}  // namespace esm::nn
