// From host memory to where a model works, without waiting.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "device/context.h"
#include "device/memory.h"
#include "device/stream.h"
#include "ops/aten.h"

namespace esm::ops {

/// One block of bytes at a time: begin() gives room in host memory, finish() hands it over. On a CUDA device the room
/// is page-locked and double, so that the host fills one half while the copy of the other waits in the stream; the
/// target is the same device memory every time. On the CPU nothing is copied.
class Upload {
 public:
  explicit Upload(const Context& context) : context_(context) {}

  /// Makes room for batches of `bytes`.
  void reserve(int64_t bytes);
  /// Room for `bytes`. Waits when the copy before the last one is not done yet.
  std::byte* begin(int64_t bytes);
  /// uint8 [bytes of begin()], valid (in stream order) until the next finish(), on the CPU until the next begin().
  at::Tensor finish();

  /// Held where the model works.
  int64_t bytes() const;

 private:
  struct Half {
    device::PinnedBuffer memory;
    std::optional<device::Event> copied;
  };

  Context context_;
  int64_t size_ = 0;
  int64_t sketched_bytes_ = 0;
  std::vector<std::byte> host_;
  std::array<Half, 2> halves_;
  int now_ = 0;
  device::DeviceBuffer target_;
};

}  // namespace esm::ops
