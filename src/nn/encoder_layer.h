// One pre-LayerNorm encoder layer:
//   x1 = x + W_o attention(rotary(W_qkv LN1(x)));   x' = x1 + W_2 gelu(W_1 LN2(x1))
// Kept for backward: x, qkv (rotated), o, x1, h = W_1 LN2(x1) + b_1 (before the GELU) and row statistics: 10 D elements
// a token, or less (nn/recompute.h). LayerNorm and GELU outputs are computed again where backward reads their inputs
// anyway.
#pragma once
#include <array>
#include <span>
#include <string>
#include <utility>

#include "nn/layers.h"
#include "nn/recompute.h"
#include "ops/attention.h"
#include "ops/gelu.h"
#include "ops/rotary.h"
#include "precision/describe_plan.h"

namespace esm::nn {

struct EncoderLayerShape {
  int64_t hidden = 0;  // D
  int64_t heads = 0;
  int64_t ffn = 0;  // F
  ops::Gelu activation = ops::Gelu::kErf;
  double layer_norm_eps = 1e-5;
  double init_std = 0.02;
};

/// What forward fills for backward, for T tokens. x is the layer's input, owned by whoever made it.
struct EncoderLayerSaved {
  at::Tensor x_TD, qkv_T3D, o_TD, lse_HT, x1_TD, h_TF;
  NormStats norm1, norm2;

  /// All but x and h. T tokens, activations of type `dtype`.
  static EncoderLayerSaved allocate(const Context& context, const EncoderLayerShape& shape, int64_t tokens,
                                    at::ScalarType dtype);
  /// h alone: one a layer, or one for all that is computed again.
  static at::Tensor allocate_h(const Context& context, const EncoderLayerShape& shape, int64_t tokens,
                               at::ScalarType dtype);
  /// The first `tokens` rows of everything (lse is cut into a dense [H, tokens]).
  EncoderLayerSaved narrow(int64_t tokens) const;
};

/// Buffers that all layers share, one use at a time: no more than one layer works at once.
struct EncoderScratch {
  at::Tensor norm_TD;  // LayerNorm output; gradient of it in backward; gradient of o
  at::Tensor act_TF;   // GELU output
  at::Tensor wide_TF;  // gradients of h, then (its first 3 D columns' worth) of qkv
  /// Codes of the inputs of the four products (D columns, the second feed-forward's F), of the gradients of h and qkv,
  /// and of the gradient of the residual stream, which the layer above makes for the one below.
  CodeBuffers input_TD, input_TF, gradient_wide, gradient_TD;

  EncoderScratch narrow(int64_t tokens) const;
};

class EncoderLayer {
 public:
  /// Parameters of layer `index`: "layers.<index>.attention_norm.weight", ...
  static std::vector<ParamSpec> declare(const EncoderLayerShape& shape, int64_t index);
  EncoderLayer(const UnitStorage& storage, const EncoderLayerShape& shape, int64_t index, const Products& products);

  /// Fills `saved` (saved.x_TD given) and x_out [T, D], which may not be x.
  void forward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary, const EncoderScratch& scratch,
               const EncoderLayerSaved& saved, const at::Tensor& x_out) const;

  /// Fills again, before backward, what was not kept of `saved`.
  void restore(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary, const EncoderScratch& scratch,
               const EncoderLayerSaved& saved, Recompute recompute) const;

  /// Buffers for all of `layers`; by columns too with `training`.
  static EncoderScratch allocate_scratch(const Context& context, std::span<const EncoderLayer> layers, int64_t tokens,
                                         at::ScalarType dtype, bool training);

  /// Makes the codes of all weights, once after each change of them.
  void quantize_weights(ops::Workspace& ws) const;

  /// dx [T, D], gradient of x_out, as backward reads it: to be made before, in scratch.
  ops::GemmOperand output_gradient(const ops::Pack& pack, const EncoderScratch& scratch, const at::Tensor& dx) const;

  /// dx, with the codes of output_gradient(), becomes the gradient of x in place, with the codes of below's
  /// output_gradient(), where there is a layer below. Adds to the parameters' gradients, but for
  /// output_bias_gradient(), which whoever made dx has seen to; that of `below` is added to here.
  void backward(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                const EncoderScratch& scratch, const EncoderLayerSaved& saved, const at::Tensor& dx,
                const EncoderLayer* below, WeightGradient weights) const;

  /// Announces to `ws` what the layer will ask for, but for attention's needs.
  void expect(ops::Workspace& ws, int64_t tokens) const;

  /// Of the bias of W_2, [D] FP32: += column sums of the gradient of x_out.
  const at::Tensor& output_bias_gradient() const { return fc2_.bias_gradient(); }

  /// What the linear layers work in, for the log; recipe: what was asked for.
  std::vector<precision::PlannedLinear> products(precision::Precision recipe) const;

  /// The linear layers by name, in the order of forward.
  std::array<std::pair<const char*, const Linear*>, 4> linears() const {
    return {{{"qkv", &qkv_}, {"out", &out_}, {"fc1", &fc1_}, {"fc2", &fc2_}}};
  }

 private:
  void attention_block(ops::Workspace& ws, const ops::Pack& pack, const ops::RotaryTable& rotary,
                       const EncoderScratch& scratch, const EncoderLayerSaved& saved) const;
  void first_product(ops::Workspace& ws, const ops::Pack& pack, const EncoderScratch& scratch,
                     const EncoderLayerSaved& saved) const;

  EncoderLayerShape shape_;
  LayerNorm norm1_;
  Linear qkv_, out_;
  LayerNorm norm2_;
  Linear fc1_, fc2_;
};

}  // namespace esm::nn
