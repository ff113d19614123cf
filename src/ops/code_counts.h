// What quantizing loses, looked at now and then: codes that became 0, codes at the end of the range, and moments of
// activations.
#pragma once
#include <string>
#include <vector>

#include "ops/gemm_operand.h"

namespace esm::ops {

/// Counts of many tensors, where the model works. Nothing is counted unless watch(true).
class CodeCounts {
 public:
  explicit CodeCounts(const Context& context) : context_(context) {}

  /// Declares a tensor, before allocate(); its index.
  int64_t add(std::string name);
  void allocate();
  const std::vector<std::string>& names() const { return names_; }

  void watch(bool on) { watching_ = on; }
  bool watching() const { return watching_; }

  /// Queues counting of the codes of `x` by rows, which replaces what was counted at `index` before.
  void count(const GemmOperand& x, int64_t index) const;

  /// [tensors, 3] int64: codes that are 0, codes at the end of the range (0 where groups have scales of their own and
  /// are emulated), codes in all. Left out: padding, and rows of zeros throughout, such as gradients of the last layer
  /// for tokens without a loss.
  const at::Tensor& counts() const { return counts_; }

 private:
  Context context_;
  std::vector<std::string> names_;
  at::Tensor counts_;
  bool watching_ = false;
};

/// [2] FP64: sum and sum of squares of the first `counted` ([1] int32; all if undefined) rows of x [T, D], FP32 or BF16
/// (on CUDA: BF16). Queued.
at::Tensor moments(const Context& context, const at::Tensor& x, const at::Tensor& counted);

}  // namespace esm::ops
