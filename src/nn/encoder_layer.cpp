#include "nn/encoder_layer.h"

#include <fmt/core.h>

#include <algorithm>

#include "ops/place.h"

namespace esm::nn {
namespace {

/// The first values of `buffer` as a dense tensor of this shape.
at::Tensor dense(const at::Tensor& buffer, at::IntArrayRef shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return buffer.view({-1}).narrow(0, 0, numel).view(shape);
}

std::string prefix_of(int64_t index) { return fmt::format("layers.{}.", index); }

}  // namespace

EncoderLayerSaved EncoderLayerSaved::allocate(const Context& context, const EncoderLayerShape& shape, int64_t tokens,
                                              at::ScalarType dtype) {
  const at::TensorOptions own = ops::options(context, dtype), wide = ops::options(context, at::kFloat);
  const auto floats = [&] { return at::empty({tokens}, wide); };
  return {.x_TD = {},
          .qkv_T3D = at::empty({tokens, 3 * shape.hidden}, own),
          .o_TD = at::empty({tokens, shape.hidden}, own),
          .lse_HT = at::empty({shape.heads, tokens}, wide),
          .x1_TD = at::empty({tokens, shape.hidden}, own),
          .h_TF = {},
          .norm1 = {floats(), floats()},
          .norm2 = {floats(), floats()}};
}

at::Tensor EncoderLayerSaved::allocate_h(const Context& context, const EncoderLayerShape& shape, int64_t tokens,
                                         at::ScalarType dtype) {
  return at::empty({tokens, shape.ffn}, ops::options(context, dtype));
}

EncoderLayerSaved EncoderLayerSaved::narrow(int64_t tokens) const {
  const auto rows = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, 0, tokens) : x; };
  return {.x_TD = rows(x_TD),
          .qkv_T3D = rows(qkv_T3D),
          .o_TD = rows(o_TD),
          .lse_HT = dense(lse_HT, {lse_HT.size(0), tokens}),
          .x1_TD = rows(x1_TD),
          .h_TF = rows(h_TF),
          .norm1 = {rows(norm1.mean), rows(norm1.rstd)},
          .norm2 = {rows(norm2.mean), rows(norm2.rstd)}};
}

EncoderScratch EncoderScratch::allocate(const Context& context, const EncoderLayerShape& shape, int64_t tokens,
                                        at::ScalarType dtype) {
  const at::TensorOptions own = ops::options(context, dtype);
  return {.norm_TD = at::empty({tokens, shape.hidden}, own),
          .act_TF = at::empty({tokens, shape.ffn}, own),
          .wide_TF = at::empty({tokens, std::max(shape.ffn, 3 * shape.hidden)}, own)};
}

EncoderScratch EncoderScratch::narrow(int64_t tokens) const {
  return {norm_TD.narrow(0, 0, tokens), act_TF.narrow(0, 0, tokens), wide_TF.narrow(0, 0, tokens)};
}

std::vector<ParamSpec> EncoderLayer::declare(const EncoderLayerShape& shape, int64_t index) {
  const std::string prefix = prefix_of(index);
  std::vector<ParamSpec> specs;
  LayerNorm::declare(specs, prefix + "attention_norm", shape.hidden);
  Linear::declare(specs, prefix + "attention.qkv", 3 * shape.hidden, shape.hidden, shape.init_std);
  Linear::declare(specs, prefix + "attention.out", shape.hidden, shape.hidden, shape.init_std);
  LayerNorm::declare(specs, prefix + "ffn_norm", shape.hidden);
  Linear::declare(specs, prefix + "ffn.fc1", shape.ffn, shape.hidden, shape.init_std);
  Linear::declare(specs, prefix + "ffn.fc2", shape.hidden, shape.ffn, shape.init_std);
  return specs;
}

EncoderLayer::EncoderLayer(const UnitStorage& storage, const EncoderLayerShape& shape, int64_t index)
    : shape_(shape),
      norm1_(storage, prefix_of(index) + "attention_norm", shape.layer_norm_eps),
      qkv_(storage, prefix_of(index) + "attention.qkv"),
      out_(storage, prefix_of(index) + "attention.out"),
      norm2_(storage, prefix_of(index) + "ffn_norm", shape.layer_norm_eps),
      fc1_(storage, prefix_of(index) + "ffn.fc1"),
      fc2_(storage, prefix_of(index) + "ffn.fc2") {}

void EncoderLayer::attention_block(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                                   const EncoderScratch& scratch, const EncoderLayerSaved& saved) const {
  norm1_.forward(ws.context(), saved.x_TD, scratch.norm_TD, saved.norm1);
  qkv_.forward(ws, scratch.norm_TD, saved.qkv_T3D);
  ops::rotary(ws, pack, rotary, {.qkv = saved.qkv_T3D, .heads = shape_.heads});
  ops::attention(ws, pack, {.qkv = saved.qkv_T3D, .out = saved.o_TD, .lse = saved.lse_HT, .heads = shape_.heads});
  out_.forward(ws, saved.o_TD, saved.x1_TD, saved.x_TD);
}

void EncoderLayer::first_product(ops::Workspace& ws, const EncoderScratch& scratch,
                                 const EncoderLayerSaved& saved) const {
  norm2_.forward(ws.context(), saved.x1_TD, scratch.norm_TD, saved.norm2);
  fc1_.forward(ws, scratch.norm_TD, saved.h_TF);
}

void EncoderLayer::forward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                           const EncoderScratch& scratch, const EncoderLayerSaved& saved,
                           const at::Tensor& x_out) const {
  attention_block(ws, pack, rotary, scratch, saved);
  first_product(ws, scratch, saved);
  ops::gelu(ws.context(), shape_.activation, saved.h_TF, scratch.act_TF);
  fc2_.forward(ws, scratch.act_TF, x_out, saved.x1_TD);
}

void EncoderLayer::expect(ops::Workspace& ws, int64_t tokens) const {
  for (const Linear* linear : {&qkv_, &out_, &fc1_, &fc2_}) linear->expect(ws, tokens);
  for (const LayerNorm* norm : {&norm1_, &norm2_}) norm->expect(ws, tokens);
  if (!fc1_.bias_gradient().defined()) return;
  ops::expect_gelu_backward(ws, tokens, shape_.ffn);
  ops::expect_rotary_sums(ws, tokens, shape_.heads, shape_.hidden / shape_.heads);
}

void EncoderLayer::restore(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                           const EncoderScratch& scratch, const EncoderLayerSaved& saved, Recompute recompute) const {
  switch (recompute) {
    case Recompute::kNone: return;
    case Recompute::kFull: attention_block(ws, pack, rotary, scratch, saved); [[fallthrough]];
    case Recompute::kSelective: return first_product(ws, scratch, saved);
  }
}

void EncoderLayer::backward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                            const EncoderScratch& scratch, const EncoderLayerSaved& saved, const at::Tensor& dx,
                            const at::Tensor& dx_sum, WeightGradient weights) const {
  const at::Tensor& norm = scratch.norm_TD;
  const at::Tensor dh = dense(scratch.wide_TF, {pack.tokens, shape_.ffn});
  fc2_.dgrad(ws, dx, dh);
  ops::gelu_backward(ws, shape_.activation,
                     {.x = saved.h_TF, .dy = dh, .dx = dh, .y = scratch.act_TF, .dx_sum = fc1_.bias_gradient()});
  fc2_.wgrad(ws, dx, scratch.act_TF, weights);
  fc1_.dgrad(ws, dh, norm);
  norm2_.backward(ws, {.x = saved.x1_TD,
                       .stats = saved.norm2,
                       .dy = norm,
                       .dx = dx,
                       .accumulate = true,
                       .y = norm,
                       .dx_sum = out_.bias_gradient()});
  fc1_.wgrad(ws, dh, norm, weights);

  const at::Tensor& d_o = norm;
  const at::Tensor dqkv = dense(scratch.wide_TF, {pack.tokens, 3 * shape_.hidden});
  out_.dgrad(ws, dx, d_o);
  out_.wgrad(ws, dx, saved.o_TD, weights);
  ops::attention_backward(
      ws, pack,
      {.qkv = saved.qkv_T3D, .out = saved.o_TD, .lse = saved.lse_HT, .dout = d_o, .dqkv = dqkv, .heads = shape_.heads});
  ops::rotary(ws, pack, rotary, {.qkv = dqkv, .heads = shape_.heads, .inverse = true, .sums = qkv_.bias_gradient()});
  qkv_.dgrad(ws, dqkv, norm);
  norm1_.backward(
      ws,
      {.x = saved.x_TD, .stats = saved.norm1, .dy = norm, .dx = dx, .accumulate = true, .y = norm, .dx_sum = dx_sum});
  qkv_.wgrad(ws, dqkv, norm, weights);
}

}  // namespace esm::nn
