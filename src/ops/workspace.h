// Where operations run, and the scratch memory they share.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "device/context.h"
#include "ops/aten.h"
#include "ops/memory_part.h"

namespace esm::ops {

class AttentionBackend;  // ops/attention_cuda.h

/// One per model. Scratch blocks are allocated at first use and reused for ever after: on the CPU because fresh large
/// blocks cost more than the arithmetic on them (page faults), on a CUDA device because a captured step allocates
/// nothing. Not thread-safe.
class Workspace {
 public:
  /// Sets the number of CPU threads of all tensor operations of this process to context.threads, and with CUDA the
  /// stream of LibTorch's operations of this thread. DeviceError for a CUDA context that make_cuda_context() did not
  /// make.
  explicit Workspace(const Context& context);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  const Context& context() const { return context_; }

  /// Whose block: kOperandA, kOperandB, kResult are a GEMM's; kPartials a column sum's.
  enum Slot { kOperandA, kOperandB, kResult, kPartials, kAttention, kSlots };
  /// Block `slot` as `numel` FP32 values, contents undefined; valid until the next call with the same slot.
  at::Tensor floats(Slot slot, int64_t numel);
  /// The same as at least `bytes` bytes.
  void* scratch(Slot slot, size_t bytes);

  /// Changes whenever a block moves: addresses that were handed out before are stale then.
  int64_t generation() const { return generation_; }
  /// Announces floats(slot, numel); allocate() then makes each block as large as its largest announcement, so that
  /// nothing is left to allocate in a step.
  void expect(Slot slot, int64_t numel);
  void allocate();

  /// Blocks held by now, but for attention's, and attention's with what LibTorch allocates within it.
  MemoryPart memory() const;
  MemoryPart attention_memory() const;
  static constexpr const char* kAttentionPart = "attention workspace";

  /// CUDA attention by capacity of the pack, and the one for the present pack (begin_attention()).
  std::map<int64_t, std::unique_ptr<AttentionBackend>> attention_backends;
  AttentionBackend* attention = nullptr;
  int64_t usual_sequences = 0;  // of a pack of proteins, as told by expect_attention(); 0: not told
  /// Bytes that LibTorch's allocator holds for tensors made within attention.
  int64_t attention_library_bytes = 0;

 private:
  Context context_;
  std::vector<at::Tensor> blocks_;
  int64_t generation_ = 0;
  std::vector<int64_t> expected_;  // elements
};

}  // namespace esm::ops
