#include "base/check.h"
#include "ops/attention_choice.h"

namespace esm::ops {

AttentionChoice choose_attention(const AttentionSizes&, at::ScalarType, device::StreamHandle) {
  fail<DeviceError>("this program was built without CUDA: it has no attention backends to choose from");
}

}  // namespace esm::ops
