#include "ops/workspace.h"

#include "base/check.h"

namespace esm::ops {

Workspace::Workspace(const Context& context) : context_(context), blocks_(kSlots) {
  if (context.device != DeviceKind::kCpu)
    fail<DeviceError>("expected a model on the CPU, found device cuda:{}; this version has no GPU kernels",
                      context.device_index);
  if (at::get_num_threads() != context.threads) at::set_num_threads(context.threads);
}

at::Tensor Workspace::floats(Slot slot, int64_t numel) {
  at::Tensor& block = blocks_[slot];
  if (!block.defined() || block.numel() < numel) block = at::empty({numel}, at::kFloat);
  return block.narrow(0, 0, numel);
}

int64_t Workspace::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& block : blocks_)
    if (block.defined()) total += block.numel() * static_cast<int64_t>(sizeof(float));
  return total;
}

}  // namespace esm::ops
