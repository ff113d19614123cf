// Tensors where a context works.
#pragma once
#include "device/context.h"
#include "ops/aten.h"

namespace esm::ops {

inline at::Device device_of(const Context& context) {
  if (context.sketch) return {at::kMeta};
  if (context.on_cuda()) return {at::kCUDA, static_cast<c10::DeviceIndex>(context.device_index)};
  return {at::kCPU};
}

inline at::TensorOptions options(const Context& context, at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(device_of(context));
}

/// LibTorch's own operations of this thread work on the context's device and stream from now on, and on the CPU with
/// its number of threads.
void bind_torch(const Context& context);

}  // namespace esm::ops
