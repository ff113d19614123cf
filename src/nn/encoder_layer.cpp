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

EncoderScratch EncoderScratch::narrow(int64_t tokens) const {
  EncoderScratch result = *this;
  for (at::Tensor* x : {&result.norm_TD, &result.act_TF, &result.wide_TF}) *x = x->narrow(0, 0, tokens);
  return result;
}

EncoderScratch EncoderLayer::allocate_scratch(const Context& context, std::span<const EncoderLayer> layers,
                                              int64_t tokens, at::ScalarType dtype, bool training) {
  const EncoderLayerShape& shape = layers.front().shape_;
  const at::TensorOptions own = ops::options(context, dtype);
  EncoderScratch scratch{.norm_TD = at::empty({tokens, shape.hidden}, own),
                         .act_TF = {},
                         .wide_TF = at::empty({tokens, std::max(shape.ffn, 3 * shape.hidden)}, own)};
  Linear::Room input_TD, input_TF, wide, gradient_TD;
  bool all_fused = true;
  for (const EncoderLayer& layer : layers) {
    for (const Linear* linear : {&layer.qkv_, &layer.out_, &layer.fc1_}) input_TD.include(linear->input_room(tokens));
    input_TF.include(layer.fc2_.input_room(tokens));
    for (const Linear* linear : {&layer.qkv_, &layer.fc1_}) wide.include(linear->gradient_room(tokens));
    for (const Linear* linear : {&layer.out_, &layer.fc2_}) gradient_TD.include(linear->gradient_room(tokens));
    all_fused = all_fused && layer.fc2_.fused();
  }
  // A GELU that writes nothing but codes leaves its values alone: they need a shape and no place.
  scratch.act_TF = all_fused ? dense(scratch.wide_TF, {tokens, shape.ffn}) : at::empty({tokens, shape.ffn}, own);
  scratch.input_TD = Linear::make_room(context, input_TD, training);
  scratch.input_TF = Linear::make_room(context, input_TF, training);
  if (!training) return scratch;
  scratch.gradient_wide = Linear::make_room(context, wide, true);
  scratch.gradient_TD = Linear::make_room(context, gradient_TD, true);
  return scratch;
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

EncoderLayer::EncoderLayer(const UnitStorage& storage, const EncoderLayerShape& shape, int64_t index,
                           const Products& products)
    : shape_(shape),
      norm1_(storage, prefix_of(index) + "attention_norm", shape.layer_norm_eps),
      qkv_(storage, prefix_of(index) + "attention.qkv", &products),
      out_(storage, prefix_of(index) + "attention.out", &products),
      norm2_(storage, prefix_of(index) + "ffn_norm", shape.layer_norm_eps),
      fc1_(storage, prefix_of(index) + "ffn.fc1", &products),
      fc2_(storage, prefix_of(index) + "ffn.fc2", &products) {}

void EncoderLayer::attention_block(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                                   const EncoderScratch& scratch, const EncoderLayerSaved& saved) const {
  const ops::GemmOperand x = qkv_.input(pack, scratch.input_TD, scratch.norm_TD, Codes::kRows);
  norm1_.forward(ws, saved.x_TD, x, saved.norm1);
  qkv_.forward(ws, x, saved.qkv_T3D);
  ops::rotary(ws, pack, rotary, {.qkv = saved.qkv_T3D, .heads = shape_.heads});
  ops::attention(ws, pack, {.qkv = saved.qkv_T3D, .out = saved.o_TD, .lse = saved.lse_HT, .heads = shape_.heads});
  const ops::GemmOperand o = out_.input(pack, scratch.input_TD, saved.o_TD, Codes::kRows);
  ops::quantize_operand(ws, o);
  out_.forward(ws, o, saved.x1_TD, saved.x_TD);
}

void EncoderLayer::first_product(ops::Workspace& ws, const ops::Pack& pack, const EncoderScratch& scratch,
                                 const EncoderLayerSaved& saved) const {
  const ops::GemmOperand x = fc1_.input(pack, scratch.input_TD, scratch.norm_TD, Codes::kRows);
  norm2_.forward(ws, saved.x1_TD, x, saved.norm2);
  fc1_.forward(ws, x, saved.h_TF);
}

void EncoderLayer::forward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                           const EncoderScratch& scratch, const EncoderLayerSaved& saved,
                           const at::Tensor& x_out) const {
  attention_block(ws, pack, rotary, scratch, saved);
  first_product(ws, pack, scratch, saved);
  const ops::GemmOperand act = fc2_.input(pack, scratch.input_TF, scratch.act_TF, Codes::kRows);
  ops::gelu(ws, shape_.activation, saved.h_TF, act);
  fc2_.forward(ws, act, x_out, saved.x1_TD);
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
    case Recompute::kSelective: return first_product(ws, pack, scratch, saved);
  }
}

std::vector<precision::PlannedLinear> EncoderLayer::products(precision::Precision recipe) const {
  std::vector<precision::PlannedLinear> result;
  for (const auto& [name, linear] : linears())
    result.push_back({.name = name, .recipe = recipe, .formats = linear->formats()});
  return result;
}

void EncoderLayer::quantize_weights(ops::Workspace& ws) const {
  for (const auto& [name, linear] : linears()) linear->quantize_weight(ws);
}

ops::GemmOperand EncoderLayer::output_gradient(const ops::Pack& pack, const EncoderScratch& scratch,
                                               const at::Tensor& dx) const {
  return fc2_.gradient(pack, scratch.gradient_TD, dx);
}

void EncoderLayer::backward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                            const EncoderScratch& scratch, const EncoderLayerSaved& saved, const at::Tensor& dx,
                            const EncoderLayer* below, WeightGradient weights) const {
  const at::Tensor& norm = scratch.norm_TD;
  const at::Tensor dact = dense(scratch.wide_TF, {pack.tokens, shape_.ffn});
  const ops::GemmOperand dx_out = output_gradient(pack, scratch, dx);
  fc2_.dgrad(ws, dx_out, dact);
  const ops::GemmOperand dh = fc1_.gradient(pack, scratch.gradient_wide, dact),
                         act = fc2_.input(pack, scratch.input_TF, scratch.act_TF, Codes::kColumns);
  ops::gelu_backward(ws, shape_.activation,
                     {.x = saved.h_TF, .dy = dact, .dx = dh, .y = act, .dx_sum = fc1_.bias_gradient()});
  fc2_.wgrad(ws, dx_out, act, weights);
  fc1_.dgrad(ws, dh, norm);
  const ops::GemmOperand dx1 = out_.gradient(pack, scratch.gradient_TD, dx),
                         y2 = fc1_.input(pack, scratch.input_TD, norm, Codes::kColumns);
  norm2_.backward(ws, {.x = saved.x1_TD,
                       .stats = saved.norm2,
                       .dy = norm,
                       .dx = dx1,
                       .accumulate = true,
                       .y = y2,
                       .dx_sum = out_.bias_gradient()});
  fc1_.wgrad(ws, dh, y2, weights);

  const at::Tensor& d_o = norm;
  const ops::GemmOperand o = out_.input(pack, scratch.input_TD, saved.o_TD, Codes::kColumns);
  ops::quantize_operand(ws, o);
  out_.dgrad(ws, dx1, d_o);
  out_.wgrad(ws, dx1, o, weights);
  const at::Tensor dturned = dense(scratch.wide_TF, {pack.tokens, 3 * shape_.hidden});
  ops::attention_backward(ws, pack,
                          {.qkv = saved.qkv_T3D,
                           .out = saved.o_TD,
                           .lse = saved.lse_HT,
                           .dout = d_o,
                           .dqkv = dturned,
                           .heads = shape_.heads});
  const ops::GemmOperand dqkv = qkv_.gradient(pack, scratch.gradient_wide, dturned);
  ops::rotary(ws, pack, rotary,
              {.qkv = dturned, .heads = shape_.heads, .inverse = true, .sums = qkv_.bias_gradient(), .gradient = dqkv});
  qkv_.dgrad(ws, dqkv, norm);
  const ops::GemmOperand dx0 = below != nullptr ? below->output_gradient(pack, scratch, dx) : ops::GemmOperand(dx),
                         y1 = qkv_.input(pack, scratch.input_TD, norm, Codes::kColumns);
  norm1_.backward(ws, {.x = saved.x_TD,
                       .stats = saved.norm1,
                       .dy = norm,
                       .dx = dx0,
                       .accumulate = true,
                       .y = y1,
                       .dx_sum = below != nullptr ? below->output_bias_gradient() : at::Tensor()});
  qkv_.wgrad(ws, dqkv, y1, weights);
}

}  // namespace esm::nn
