#include "nn/token_embedding.h"

namespace esm::nn {

std::vector<ParamSpec> TokenEmbedding::declare(const Shape& shape) {
  return {{.name = "embedding.weight",
           .shape = {shape.vocabulary, shape.hidden},
           .kind = ParamKind::kEmbedding,
           .init_std = shape.init_std,
           .zero_row = ops::kPadToken,
           .padded_rows = shape.padded_vocabulary}};
}

TokenEmbedding::TokenEmbedding(const UnitStorage& storage, const Shape& shape)
    : weight_(storage.view(Role::kCompute, "embedding.weight")), token_dropout_(shape.token_dropout) {
  if (storage.has(Role::kGrad)) dweight_ = storage.view(Role::kGrad, "embedding.weight");
}

void TokenEmbedding::forward(const Context& context, const ops::Pack& pack, const at::Tensor& factors,
                             const at::Tensor& x) const {
  ops::embedding_factors(context, pack, token_dropout_, factors);
  ops::embedding(context, pack.ids, factors, weight_, x);
}

void TokenEmbedding::backward(ops::Workspace& ws, const ops::Pack& pack, const at::Tensor& factors,
                              const at::Tensor& dx) const {
  ops::embedding_backward(ws, pack.ids, factors, dx, dweight_);
}

void TokenEmbedding::expect(ops::Workspace& ws, int64_t tokens) const {
  if (dweight_.defined()) ops::expect_embedding_backward(ws, tokens, dweight_.size(1), dweight_.size(0));
}

}  // namespace esm::nn
