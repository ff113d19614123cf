#include "ops/upload.h"

#include <algorithm>

#include "base/check.h"
#include "ops/place.h"

namespace esm::ops {
namespace {

constexpr int64_t kRoom = 2;  // on a device, times what is asked for: the next batch may be larger

}  // namespace

void Upload::reserve(int64_t bytes) {
  if (context_.sketch) {
    sketched_bytes_ = std::max(sketched_bytes_, context_.on_cuda() ? kRoom * bytes : bytes);
  } else if (!context_.on_cuda()) {
    if (std::ssize(host_) < bytes) host_.resize(static_cast<size_t>(bytes));
  } else if (target_.bytes() < bytes) {
    synchronize(context_);
    for (Half& half : halves_) half.memory = device::PinnedBuffer("staging of batches", kRoom * bytes);
    target_ = device::DeviceBuffer("batches", kRoom * bytes);
  }
}

int64_t Upload::bytes() const {
  if (context_.sketch) return sketched_bytes_;
  return context_.on_cuda() ? target_.bytes() : static_cast<int64_t>(host_.size());
}

std::byte* Upload::begin(int64_t bytes) {
  size_ = bytes;
  reserve(bytes);
  if (context_.sketch) host_.resize(static_cast<size_t>(bytes));
  if (context_.sketch || !context_.on_cuda()) return host_.data();
  now_ = 1 - now_;
  Half& half = halves_[now_];
  if (half.copied.has_value()) half.copied->synchronize();
  return half.memory.as<std::byte>();
}

at::Tensor Upload::finish() {
  if (context_.sketch) return at::empty({size_}, options(context_, at::kByte));
  if (!context_.on_cuda()) return at::from_blob(host_.data(), {size_}, at::kByte);
  Half& half = halves_[now_];
  device::copy_to_device(half.memory.get(), target_.get(), size_, context_.stream());
  if (!half.copied.has_value()) half.copied.emplace();
  half.copied->record(context_.stream());
  return at::from_blob(target_.get(), {size_}, options(context_, at::kByte));
}

}  // namespace esm::ops
