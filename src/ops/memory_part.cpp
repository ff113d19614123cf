#include "ops/memory_part.h"

#include "base/narrow.h"

namespace esm::ops {

int64_t rounded_block_bytes(int64_t bytes) {
  constexpr int64_t kLargeBlock = 10 << 20, kLargeUnit = 2 << 20, kSmallUnit = 512;
  return round_up(bytes, bytes >= kLargeBlock ? kLargeUnit : kSmallUnit);
}

MemoryPart& MemoryPart::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return *this;
  const int64_t size = tensor.numel() * static_cast<int64_t>(tensor.element_size());
  bytes += size;
  rounding_bytes += rounded_block_bytes(size) - size;
  return *this;
}

}  // namespace esm::ops
