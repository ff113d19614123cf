#include "ops/replay.h"

#include "base/check.h"
#include "device/cuda_queue.h"

namespace esm::ops {

Replay::Replay(const Context& context, bool graphs) : context_(context) {
  if (graphs && context.on_cuda() && !context.sketch) pool_ = std::make_unique<GraphPool>();
}

Replay::~Replay() { clear(); }

void Replay::run(const Key& key, const std::function<void()>& work) {
  if (!pool_ || context_.cuda->clock) return work();
  const auto at = recorded_.find(key);
  if (at == recorded_.end()) {
    work();
    recorded_.try_emplace(key);
    return;
  }
  std::optional<device::Graph>& graph = at->second;
  if (!graph.has_value()) {
    const GraphPool::Scope scope(*pool_, context_.stream());
    try {
      graph.emplace(device::Graph::capture(context_.stream(), work));
    } catch (const DeviceError& error) {
      fail<DeviceError>("the work of a step cannot be recorded as a CUDA graph (cuda_graph: false does without): {}",
                        error.what());
    }
  }
  graph->launch(context_.stream());
}

void Replay::clear() {
  if (recorded_.empty()) return;
  synchronize(context_);  // a graph may not be destroyed while it runs
  recorded_.clear();
}

}  // namespace esm::ops
