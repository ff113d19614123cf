#include "ops/graph_pool_cuda.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace esm::ops {

namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

c10::DeviceIndex index_of(int device) { return static_cast<c10::DeviceIndex>(device); }

}  // namespace

GraphPool::GraphPool() : device_(c10::cuda::current_device()) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // the allocator may not have been used yet
  const c10::MempoolId_t id = at::cuda::graph_pool_handle();
  id_[0] = id.first;
  id_[1] = id.second;
  allocator::createOrIncrefPool(index_of(device_), id);
  references_ = 1;
}

GraphPool::~GraphPool() {
  for (; references_ > 0; --references_) allocator::releasePool(index_of(device_), {id_[0], id_[1]});
}

GraphPool::Scope::Scope(GraphPool& pool, device::StreamHandle stream) : pool_(pool) {
  const c10::MempoolId_t id{pool.id_[0], pool.id_[1]};
  // Each beginning counts as a user of the pool.
  const int before = allocator::getPoolUseCount(index_of(pool.device_), id);
  allocator::beginAllocateToPool(index_of(pool.device_), id,
                                 [stream](cudaStream_t asking) { return asking == stream; });
  pool.references_ += allocator::getPoolUseCount(index_of(pool.device_), id) - before;
}

GraphPool::Scope::~Scope() { allocator::endAllocateToPool(index_of(pool_.device_), {pool_.id_[0], pool_.id_[1]}); }

}  // namespace esm::ops
