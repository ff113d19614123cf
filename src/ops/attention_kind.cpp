#include "ops/attention_cuda.h"

namespace esm::ops {

std::string_view attention_kind_name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kFlash2: return "flash2";
    case AttentionKind::kCudnn: return "cudnn";
    case AttentionKind::kSimple: return "simple";
  }
  return "";
}

}  // namespace esm::ops
