#include "nn/token_embedding.h"

namespace esm::nn {

std::vector<ParamSpec> TokenEmbedding::declare(const Shape& shape) {
  return {{.name = "embedding.weight",
           .shape = {shape.vocabulary, shape.hidden},
           .kind = ParamKind::kEmbedding,
           .init_std = shape.init_std,
           .zero_row = ops::kPadToken}};
}

TokenEmbedding::TokenEmbedding(const UnitStorage& storage, const Shape& shape)
    : weight_(storage.view(Role::kCompute, "embedding.weight")), token_dropout_(shape.token_dropout) {
  if (storage.has(Role::kGrad)) dweight_ = storage.view(Role::kGrad, "embedding.weight");
}

std::vector<float> TokenEmbedding::forward(const ops::Pack& pack, std::span<const uint8_t> tokens,
                                           const at::Tensor& x) const {
  std::vector<float> factors = ops::embedding_factors(pack, tokens, token_dropout_);
  ops::embedding(tokens, factors, weight_, x);
  return factors;
}

void TokenEmbedding::backward(std::span<const uint8_t> tokens, std::span<const float> factors,
                              const at::Tensor& dx) const {
  ops::embedding_backward(tokens, factors, dx, dweight_);
}

}  // namespace esm::nn
