#include "train/host_copy.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"

namespace esm::train {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 20;
constexpr size_t kAlignment = 64;

}  // namespace

void HostCopy::clear() { block_ = used_ = 0; }

void HostCopy::release() {
  clear();
  blocks_.clear();
}

int64_t HostCopy::held_bytes() const {
  int64_t bytes = 0;
  for (const Block& block : blocks_) bytes += static_cast<int64_t>(block.size);
  return bytes;
}

// Not filled with zeros on the CPU: the pages come with the first copy.
HostCopy::Block HostCopy::new_block(size_t bytes) const {
  Block block{.memory = nullptr, .pinned = {}, .size = bytes};
  if (!context_.on_cuda()) {
    block.memory.reset(new std::byte[bytes]);
    return block;
  }
  try {
    block.pinned = device::PinnedBuffer("the copy of a checkpoint", static_cast<int64_t>(bytes));
  } catch (const device::OutOfMemory&) {
    throw std::bad_alloc();
  }
  return block;
}

std::byte* HostCopy::take(size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) blocks_.push_back(new_block(std::max(bytes, kBlockBytes)));
  std::byte* const memory = blocks_[block_].data() + used_;
  used_ += bytes;
  return memory;
}

std::span<const std::byte> HostCopy::add(const at::Tensor& tensor) {
  ESM_CHECK(tensor.is_contiguous(), "a tensor to be copied is not contiguous");
  const size_t bytes = tensor.nbytes();
  std::byte* const memory = take(bytes);
  if (tensor.is_cpu())
    std::memcpy(memory, tensor.data_ptr(), bytes);
  else
    device::copy_to_host(tensor.data_ptr(), memory, static_cast<int64_t>(bytes), context_.stream());
  return {memory, bytes};
}

}  // namespace esm::train
