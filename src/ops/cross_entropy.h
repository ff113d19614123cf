// Masked-language loss of scored rows, and moving rows between the packed tokens and the head.
#pragma once
#include <span>

#include "ops/aten.h"

namespace esm::ops {

struct CrossEntropyResult {
  double loss_sum = 0;
  int64_t n_correct = 0;

  CrossEntropyResult& operator+=(const CrossEntropyResult& other) {
    loss_sum += other.loss_sum;
    n_correct += other.n_correct;
    return *this;
  }
};

/// logits [N, V] FP32, targets [N] token ids. Per row with p = softmax(logits), smoothing e:
///   loss = -(1 - e) log p[target] - e/V sum over v of log p[v]
/// dlogits, if defined, [N, V] FP32 or BF16 (may be logits): gradient of the sum of losses. Rows are computed in FP64
/// and summed in order. The lowest id wins a tie for the highest logit.
struct CrossEntropyArgs {
  at::Tensor logits;
  std::span<const uint8_t> targets;
  double label_smoothing = 0;
  at::Tensor dlogits;
};
CrossEntropyResult cross_entropy(const CrossEntropyArgs& a);

/// to[i, :] = from[rows[i], :].
void gather_rows(const at::Tensor& from, std::span<const int32_t> rows, const at::Tensor& to);
/// to[rows[i], :] = from[i, :]; rows are distinct, others keep their content.
void scatter_rows(const at::Tensor& from, std::span<const int32_t> rows, const at::Tensor& to);

}  // namespace esm::ops
