// Copies of tensors in host memory, so that training can go on while they are written.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/context.h"
#include "device/memory.h"
#include "ops/aten.h"

namespace esm::train {

/// Memory is kept from one round of copies to the next: rounds of the same tensors allocate once. On a CUDA device it
/// is page-locked and the copies are queued on the context's stream.
class HostCopy {
 public:
  explicit HostCopy(const Context& context) : context_(context) {}

  /// Begins a new round: every copy so far is void.
  void clear();
  /// Copies `tensor` (contiguous) as it will be when the stream gets there. The bytes may be read after wait(), until
  /// clear() or release(). Throws std::bad_alloc.
  std::span<const std::byte> add(const at::Tensor& tensor);
  /// Until every copy is there.
  void wait() const { synchronize(context_); }
  /// Gives the memory back.
  void release();
  /// Of host memory that is held.
  int64_t held_bytes() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;  // on the CPU
    device::PinnedBuffer pinned;          // on a CUDA device
    size_t size = 0;

    std::byte* data() const { return memory != nullptr ? memory.get() : pinned.as<std::byte>(); }
  };
  Block new_block(size_t bytes) const;
  std::byte* take(size_t bytes);

  Context context_;
  std::vector<Block> blocks_;
  size_t block_ = 0;  // the one that is being filled
  size_t used_ = 0;   // bytes of it
};

}  // namespace esm::train
