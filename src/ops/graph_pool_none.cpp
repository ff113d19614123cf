#include "base/check.h"
#include "ops/graph_pool_cuda.h"

namespace esm::ops {

GraphPool::GraphPool() { fail<DeviceError>("this program was built without CUDA: it captures no graphs"); }
GraphPool::~GraphPool() = default;
GraphPool::Scope::Scope(GraphPool& pool, device::StreamHandle) : pool_(pool) {}
GraphPool::Scope::~Scope() = default;

}  // namespace esm::ops
