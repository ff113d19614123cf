// First unit: token embedding with ESM-2's token dropout. Its weight [V, D] is also the decoder of the head.
#pragma once
#include <vector>

#include "nn/storage.h"
#include "ops/embedding.h"

namespace esm::nn {

class TokenEmbedding {
 public:
  struct Shape {
    int64_t vocabulary = 0, hidden = 0;
    int64_t padded_vocabulary = 0;  // rows that the head's GEMMs see; 0: vocabulary
    bool token_dropout = true;
    double init_std = 0.02;
  };
  static std::vector<ParamSpec> declare(const Shape& shape);
  TokenEmbedding(const UnitStorage& storage, const Shape& shape);

  /// x [T, D]. factors [T] FP32 receives the factor of each row, which backward wants back.
  void forward(const Context& context, const ops::Pack& pack, const at::Tensor& factors, const at::Tensor& x) const;
  void backward(ops::Workspace& ws, const ops::Pack& pack, const at::Tensor& factors, const at::Tensor& dx) const;
  /// Announces to `ws` what backward will ask for.
  void expect(ops::Workspace& ws, int64_t tokens) const;

 private:
  at::Tensor weight_, dweight_;
  bool token_dropout_;
};

}  // namespace esm::nn
