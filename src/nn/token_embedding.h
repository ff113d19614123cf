// First unit: token embedding with ESM-2's token dropout. Its weight [V, D] is also the decoder of the head.
#pragma once
#include <span>
#include <vector>

#include "nn/storage.h"
#include "ops/embedding.h"

namespace esm::nn {

class TokenEmbedding {
 public:
  struct Shape {
    int64_t vocabulary = 0, hidden = 0;
    bool token_dropout = true;
    double init_std = 0.02;
  };
  static std::vector<ParamSpec> declare(const Shape& shape);
  TokenEmbedding(const UnitStorage& storage, const Shape& shape);

  /// x [T, D]. Returns the factor of each row, which backward wants back.
  std::vector<float> forward(const ops::Pack& pack, std::span<const uint8_t> tokens, const at::Tensor& x) const;
  void backward(std::span<const uint8_t> tokens, std::span<const float> factors, const at::Tensor& dx) const;

 private:
  at::Tensor weight_, dweight_;
  bool token_dropout_;
};

}  // namespace esm::nn
