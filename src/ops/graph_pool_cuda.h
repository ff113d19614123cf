// LibTorch allocations inside a captured graph: the graph replays with the addresses of the capture, so that memory
// must belong to the graph alone.
#pragma once
#include <cstdint>

#include "device/handles.h"

namespace esm::ops {

/// A pool of device memory of LibTorch's caching allocator. Lives as long as the graphs captured with it.
class GraphPool {
 public:
  GraphPool();
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// While it lives, tensors made on `stream` of the current device come from the pool. Make it around the capture,
  /// not around warm-up runs.
  class Scope {
   public:
    Scope(GraphPool& pool, device::StreamHandle stream);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphPool& pool_;
  };

 private:
  int device_ = 0;
  uint64_t id_[2] = {0, 0};
  int references_ = 0;  // counted by the allocator, given back by the destructor
};

}  // namespace esm::ops
