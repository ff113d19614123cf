// From where a model works to host memory, without waiting: results are queued and read later, in their order.
#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "device/context.h"
#include "device/memory.h"
#include "device/stream.h"
#include "ops/aten.h"

namespace esm::ops {

/// Values of one size. On a CUDA device each goes to its own piece of page-locked memory, with an event behind it; on
/// the CPU it is copied at once.
class Download {
 public:
  /// At most `slots` values on their way.
  Download(const Context& context, int64_t bytes, int64_t slots);

  /// Queues a copy of `value`, contiguous, as it will be when the stream gets there.
  void push(const at::Tensor& value);
  int64_t pending() const { return static_cast<int64_t>(pending_.size()); }
  /// The oldest value, valid until the next push(); waits for it.
  const std::byte* pop();

 private:
  struct Slot {
    std::vector<std::byte> memory;  // on the CPU
    device::PinnedBuffer pinned;    // on a CUDA device, and when the copy is done
    std::optional<device::Event> copied;
  };

  Context context_;
  int64_t bytes_;
  std::vector<Slot> slots_;
  std::deque<size_t> pending_;
  size_t next_ = 0;
};

}  // namespace esm::ops
