#include "ops/download.h"

#include <cstring>

#include "base/check.h"

namespace esm::ops {

Download::Download(const Context& context, int64_t bytes, int64_t slots)
    : context_(context), bytes_(bytes), slots_(static_cast<size_t>(slots)) {
  for (Slot& slot : slots_) {
    if (!context.on_cuda()) {
      slot.memory.resize(static_cast<size_t>(bytes));
      continue;
    }
    slot.pinned = device::PinnedBuffer("results of steps", bytes);
    slot.copied.emplace();
  }
}

void Download::push(const at::Tensor& value) {
  ESM_CHECK(pending_.size() < slots_.size(), "{} results are waiting to be read", pending_.size());
  ESM_CHECK(value.is_contiguous() && static_cast<int64_t>(value.nbytes()) == bytes_, "a result of {} bytes, not {}",
            value.nbytes(), bytes_);
  Slot& slot = slots_[next_];
  if (context_.on_cuda()) {
    device::copy_to_host(value.data_ptr(), slot.pinned.get(), bytes_, context_.stream());
    slot.copied->record(context_.stream());
  } else {
    std::memcpy(slot.memory.data(), value.data_ptr(), value.nbytes());
  }
  pending_.push_back(next_);
  next_ = (next_ + 1) % slots_.size();
}

const std::byte* Download::pop() {
  ESM_CHECK(!pending_.empty(), "no result is on its way");
  const Slot& slot = slots_[pending_.front()];
  if (slot.copied.has_value()) slot.copied->synchronize();
  pending_.pop_front();
  return context_.on_cuda() ? slot.pinned.as<std::byte>() : slot.memory.data();
}

}  // namespace esm::ops
