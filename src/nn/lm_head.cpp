#include "nn/lm_head.h"

#include <algorithm>

#include "ops/gelu.h"
#include "ops/linear.h"
#include "ops/place.h"

namespace esm::nn {

std::vector<ParamSpec> LmHead::declare(const Shape& shape) {
  std::vector<ParamSpec> specs;
  LayerNorm::declare(specs, "final_norm", shape.hidden);
  Linear::declare(specs, "head.dense", shape.hidden, shape.hidden, shape.init_std);
  LayerNorm::declare(specs, "head.norm", shape.hidden);
  specs.push_back({.name = "head.bias", .shape = {shape.vocabulary}, .kind = ParamKind::kBias});
  return specs;
}

LmHead::LmHead(const Context& context, const UnitStorage& storage, const UnitStorage& embedding, const Shape& shape,
               int64_t chunk_rows, at::ScalarType dtype)
    : storage_(&storage),
      bias_index_(static_cast<size_t>(storage.find("head.bias"))),
      final_norm_(storage, "final_norm", shape.layer_norm_eps),
      dense_(storage, "head.dense"),
      norm_(storage, "head.norm", shape.layer_norm_eps),
      decoder_(embedding.padded_view(Role::kCompute, "embedding.weight")),
      bias_(storage.has(Role::kMaster) ? storage.view(Role::kMaster, bias_index_)
                                       : at::empty({shape.vocabulary}, ops::options(context, at::kFloat))),
      vocabulary_(shape.vocabulary),
      chunk_rows_(chunk_rows) {
  if (storage.has(Role::kGrad)) {
    ddecoder_ = embedding.padded_view(Role::kGrad, "embedding.weight");
    dbias_ = storage.view(Role::kGrad, "head.bias");
  }
  const at::TensorOptions own = ops::options(context, dtype), floats = ops::options(context, at::kFloat);
  const auto wide = [&] { return at::empty({chunk_rows, shape.hidden}, own); };
  const auto stats = [&] { return NormStats{at::empty({chunk_rows}, floats), at::empty({chunk_rows}, floats)}; };
  chunk_ = {.x_ND = wide(),
            .y_ND = wide(),
            .dense_ND = wide(),
            .act_ND = wide(),
            .z_ND = wide(),
            .logits_NV = at::empty({chunk_rows, shape.padded_vocabulary}, floats),
            .dlogits_NV = at::empty({chunk_rows, shape.padded_vocabulary}, own),
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

const at::Tensor& LmHead::bias() const {
  if (!storage_->has(Role::kMaster)) storage_->copy_weights(bias_index_, bias_);
  return bias_;
}

void LmHead::forward_chunk(ops::Workspace& ws, const Chunk& c) const {
  final_norm_.forward(ws, c.x_ND, c.y_ND, c.norm1);
  dense_.forward(ws, c.y_ND, c.dense_ND);
  ops::gelu(ws, ops::Gelu::kErf, c.dense_ND, c.act_ND);
  norm_.forward(ws, c.act_ND, c.z_ND, c.norm2);
  ops::linear(ws, {.x = c.z_ND, .weight = decoder_, .bias = {}, .residual = {}, .y = c.logits_NV});
}

void LmHead::backward_chunk(ops::Workspace& ws, const Chunk& c) const {
  ops::linear_dgrad(ws, {.dy = c.dlogits_NV, .weight = decoder_, .dx = c.grad_ND});
  ops::linear_wgrad(ws, {.dy = c.dlogits_NV, .x = c.z_ND, .dweight = ddecoder_});
  norm_.backward(ws, {.x = c.act_ND, .stats = c.norm2, .dy = c.grad_ND, .dx = c.grad2_ND, .y = {}});
  ops::gelu_backward(ws, ops::Gelu::kErf,
                     {.x = c.dense_ND, .dy = c.grad2_ND, .dx = c.grad2_ND, .y = {}, .dx_sum = dense_.bias_gradient()});
  dense_.dgrad(ws, c.grad2_ND, c.grad_ND);
  dense_.wgrad(ws, c.grad2_ND, c.y_ND);
  final_norm_.backward(ws, {.x = c.x_ND, .stats = c.norm1, .dy = c.grad_ND, .dx = c.grad2_ND, .y = {}});
}

template <class Body>
void LmHead::for_each_chunk(const Scored& scored, const Body& body) const {
  const int64_t total = scored.rows.numel();
  for (int64_t begin = 0; begin < total; begin += chunk_rows_) {
    const int64_t rows = std::min(chunk_rows_, total - begin);
    body(chunk_.narrow(rows),
         ops::Rows{scored.rows.narrow(0, begin, rows), scored.counts.narrow(0, begin / chunk_rows_, 1)},
         scored.targets.narrow(0, begin, rows));
  }
}

void LmHead::loss(ops::Workspace& ws, const at::Tensor& x, const Scored& scored, const at::Tensor& sums) {
  const at::Tensor& bias_V = bias();
  for_each_chunk(scored, [&](const Chunk& c, const ops::Rows& rows, const at::Tensor& targets) {
    ops::gather_rows(ws.context(), x, rows, c.x_ND);
    forward_chunk(ws, c);
    ops::cross_entropy(ws, {.logits = c.logits_NV,
                            .bias = bias_V,
                            .targets = targets,
                            .count = rows.count,
                            .classes = vocabulary_,
                            .label_smoothing = 0,
                            .sums = sums,
                            .dlogits = {},
                            .dbias = {}});
  });
}

void LmHead::loss_and_gradient(ops::Workspace& ws, const at::Tensor& x, const Scored& scored, double label_smoothing,
                               const at::Tensor& sums, const at::Tensor& dx) {
  const at::Tensor& bias_V = bias();
  for_each_chunk(scored, [&](const Chunk& c, const ops::Rows& rows, const at::Tensor& targets) {
    ops::gather_rows(ws.context(), x, rows, c.x_ND);
    forward_chunk(ws, c);
    ops::cross_entropy(ws, {.logits = c.logits_NV,
                            .bias = bias_V,
                            .targets = targets,
                            .count = rows.count,
                            .classes = vocabulary_,
                            .label_smoothing = label_smoothing,
                            .sums = sums,
                            .dlogits = c.dlogits_NV,
                            .dbias = dbias_});
    backward_chunk(ws, c);
    ops::scatter_rows(ws.context(), c.grad2_ND, rows, dx);
  });
}

void LmHead::final_norm(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& y) const {
  const at::TensorOptions floats = ops::options(ws.context(), at::kFloat);
  final_norm_.forward(ws, x, y, {at::empty({x.size(0)}, floats), at::empty({x.size(0)}, floats)});
}

void LmHead::logits(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& logits) {
  const at::Tensor& bias_V = bias();
  for (int64_t begin = 0; begin < x.size(0); begin += chunk_rows_) {
    const int64_t rows = std::min(chunk_rows_, x.size(0) - begin);
    Chunk c = chunk_.narrow(rows);
    c.x_ND = x.narrow(0, begin, rows);
    forward_chunk(ws, c);
    logits.narrow(0, begin, rows).copy_(c.logits_NV.narrow(1, 0, vocabulary_)).add_(bias_V);
  }
}

void LmHead::expect(ops::Workspace& ws) const {
  const bool training = ddecoder_.defined();
  dense_.expect(ws, chunk_rows_);
  ops::expect_linear(ws, {.tokens = chunk_rows_,
                          .out = decoder_.size(0),
                          .in = decoder_.size(1),
                          .type = decoder_.scalar_type(),
                          .training = training});
  for (const LayerNorm* norm : {&final_norm_, &norm_}) norm->expect(ws, chunk_rows_);
  if (training) ops::expect_gelu_backward(ws, chunk_rows_, decoder_.size(1));
  ops::expect_cross_entropy(ws, chunk_rows_, decoder_.size(0));
}

precision::PlannedLinear LmHead::products() const {
  const auto recipe = decoder_.scalar_type() == at::kFloat ? precision::Precision::kFp32 : precision::Precision::kBf16;
  return {.name = "head",
          .recipe = recipe,
          .formats = precision::resolve(precision::find_recipe(recipe), decoder_.size(0), decoder_.size(1), chunk_rows_,
                                        /*capability=*/0)};
}

ops::MemoryPart LmHead::memory() const {
  ops::MemoryPart part{.name = "head"};
  for (const at::Tensor& x :
       {chunk_.x_ND, chunk_.y_ND, chunk_.dense_ND, chunk_.act_ND, chunk_.z_ND, chunk_.logits_NV, chunk_.dlogits_NV,
        chunk_.grad_ND, chunk_.grad2_ND, chunk_.norm1.mean, chunk_.norm1.rstd, chunk_.norm2.mean, chunk_.norm2.rstd})
    part.add(x);
  if (!storage_->has(Role::kMaster)) part.add(bias_);
  return part;
}

}  // namespace esm::nn
