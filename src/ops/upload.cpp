#include "ops/upload.h"

#include "base/check.h"
#include "ops/place.h"

namespace esm::ops {

std::byte* Upload::begin(int64_t bytes) {
  size_ = bytes;
  if (!context_.on_cuda()) {
    if (std::ssize(host_) < bytes) host_.resize(static_cast<size_t>(bytes));
    return host_.data();
  }
  now_ = 1 - now_;
  Half& half = halves_[now_];
  if (half.copied.has_value()) half.copied->synchronize();
  if (half.memory.bytes() < bytes) half.memory = device::PinnedBuffer("staging of batches", 2 * bytes);
  return half.memory.as<std::byte>();
}

at::Tensor Upload::finish() {
  if (!context_.on_cuda()) return at::from_blob(host_.data(), {size_}, at::kByte);
  if (target_.bytes() < size_) {
    synchronize(context_);
    target_ = device::DeviceBuffer("batches", 2 * size_);
  }
  Half& half = halves_[now_];
  device::copy_to_device(half.memory.get(), target_.get(), size_, context_.stream());
  if (!half.copied.has_value()) half.copied.emplace();
  half.copied->record(context_.stream());
  return at::from_blob(target_.get(), {size_}, options(context_, at::kByte));
}

}  // namespace esm::ops
