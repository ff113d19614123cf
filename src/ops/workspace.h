// Where operations run, and the scratch memory they share.
#pragma once
#include <vector>

#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

/// One per model. Scratch blocks are allocated at first use and reused for ever after, because fresh large blocks cost
/// more than the arithmetic on them (page faults). Not thread-safe.
class Workspace {
 public:
  /// Sets the number of CPU threads of all tensor operations of this process to context.threads.
  explicit Workspace(const Context& context);

  const Context& context() const { return context_; }

  /// Whose block: kOperandA, kOperandB, kResult are a GEMM's; kPartials a column sum's.
  enum Slot { kOperandA, kOperandB, kResult, kPartials, kAttention, kSlots };
  /// Block `slot` as `numel` FP32 values, contents undefined; valid until the next call with the same slot.
  at::Tensor floats(Slot slot, int64_t numel);

  /// Bytes held by now.
  int64_t bytes() const;

 private:
  Context context_;
  std::vector<at::Tensor> blocks_;
};

}  // namespace esm::ops
