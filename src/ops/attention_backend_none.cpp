#include "base/check.h"
#include "ops/attention_cuda.h"

namespace esm::ops {

std::unique_ptr<AttentionBackend> make_attention_backend(AttentionKind kind, const AttentionSizes&) {
  fail<DeviceError>("this program was built without CUDA: it has no attention backend '{}'", attention_kind_name(kind));
}

}  // namespace esm::ops
