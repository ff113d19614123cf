#include "ops/workspace.h"

#include <algorithm>

#include "base/check.h"
#include "ops/attention_cuda.h"
#include "ops/place.h"

namespace esm::ops {

Workspace::Workspace(const Context& context) : context_(context), blocks_(kSlots), expected_(kSlots) {
  if (context.on_cuda() && !context.cuda && !context.sketch)
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

void Workspace::expect(Slot slot, int64_t numel) { expected_[slot] = std::max(expected_[slot], numel); }

void Workspace::allocate() {
  for (int slot = 0; slot < kSlots; ++slot)
    if (expected_[slot] > 0) floats(static_cast<Slot>(slot), expected_[slot]);
}

MemoryPart Workspace::memory() const {
  MemoryPart part{.name = "scratch of operations"};
  for (int slot = 0; slot < kSlots; ++slot)
    if (slot != kAttention) part.add(blocks_[slot]);
  return part;
}

MemoryPart Workspace::attention_memory() const {
  MemoryPart part{.name = kAttentionPart, .bytes = attention_library_bytes};
  return part.add(blocks_[kAttention]);
}

}  // namespace esm::ops
