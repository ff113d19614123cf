#include "ops/workspace.h"

#include "base/check.h"
#include "ops/attention_cuda.h"
#include "ops/place.h"

namespace esm::ops {

Workspace::Workspace(const Context& context) : context_(context), blocks_(kSlots) {
  if (context.on_cuda() && !context.cuda)
    fail<DeviceError>("expected an opened CUDA device, found the bare name cuda:{}", context.device_index);
  bind_torch(context);
}

Workspace::~Workspace() = default;

at::Tensor Workspace::floats(Slot slot, int64_t numel) {
  at::Tensor& block = blocks_[slot];
  if (!block.defined() || block.numel() < numel) {
    block.reset();  // first, so that both need not fit
    block = at::empty({numel}, options(context_, at::kFloat));
    ++generation_;
  }
  return block.narrow(0, 0, numel);
}

void* Workspace::scratch(Slot slot, size_t bytes) {
  return floats(slot, static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float))).mutable_data_ptr();
}

int64_t Workspace::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& block : blocks_)
    if (block.defined()) total += block.numel() * static_cast<int64_t>(sizeof(float));
  return total;
}

}  // namespace esm::ops
