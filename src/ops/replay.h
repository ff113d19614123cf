// Device work that is queued again and again: recorded once as a CUDA graph, then replayed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/context.h"
#include "device/stream.h"
#include "ops/graph_pool_cuda.h"

namespace esm::ops {

/// On the CPU, and without `graphs`, run() just calls `work`. On a CUDA device the first call with a key runs it as it
/// is (scratch memory is allocated, GEMMs are timed, kernels are loaded), the second one records it, and from then on
/// the graph is replayed: the same kernels on the same addresses, hence the same bits.
class Replay {
 public:
  /// Everything that sizes, kernels and addresses of the work depend on.
  using Key = std::vector<int64_t>;

  Replay(const Context& context, bool graphs);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// `work` queues work on the context's stream and waits for nothing.
  void run(const Key& key, const std::function<void()>& work);
  /// Forgets all graphs: whenever memory that they use has moved.
  void clear();

 private:
  Context context_;
  std::unique_ptr<GraphPool> pool_;                       // null: no graphs
  std::map<Key, std::optional<device::Graph>> recorded_;  // none: run once
};

}  // namespace esm::ops
