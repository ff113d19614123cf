// A second opinion on the model: ESM-2 written with LibTorch operators in FP64, one sequence at a time, differentiated
// by LibTorch's autograd. Shares no code with ours but the tensor class.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "data/batch.h"
#include "models/esm2.h"

namespace esm::test {

class Oracle {
 public:
  /// Leaves in FP64 from the master weights of `model`. With `storage` BF16 a witness of that precision: weights, and
  /// every tensor that a BF16 program writes to memory, forward and backward, are rounded to BF16, each once; sums and
  /// functions between them are FP64.
  explicit Oracle(models::Esm2& model, DType storage = DType::kF64);

  struct Result {
    double loss_sum = 0;
    std::vector<std::vector<double>> logits;  // per real segment, [n * 33]
  };
  /// Loss (smoothed) over the scored rows; fills gradients() with those of the sum.
  Result run(const data::Batch& batch, double label_smoothing = 0);

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  std::vector<double> gradient(const std::string& name) const;

  /// Planted errors, to show that the comparisons would notice.
  enum class Fault {
    kNone,
    kKeyPositions,    // keys are turned by one position more than queries
    kRotaryPairs,     // elements 2i and 2i + 1 turn together instead of i and i + K/2
    kNoTokenDropout,  // embeddings are not rescaled
    kLeak,            // a token also sees the sequences before its own
    kTanhGelu,        // the tanh form of GELU for the exact one, or the other way round
    kNoQueryScale,    // scores are not divided by sqrt(K)
  };
  Fault fault = Fault::kNone;

 private:
  at::Tensor stored(const at::Tensor& x) const;
  at::Tensor gradient_stored(const at::Tensor& x) const;
  at::Tensor layer_norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor linear(const at::Tensor& x, const std::string& name) const;
  at::Tensor rotate(const at::Tensor& x, int64_t first_position) const;
  at::Tensor gelu(const at::Tensor& x, models::Activation form) const;
  at::Tensor encoder_layer(const at::Tensor& x, int64_t layer) const;
  at::Tensor logits(const std::vector<int64_t>& tokens) const;

  models::Esm2Config config_;
  DType storage_;
  std::vector<float> inv_freq_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace esm::test
