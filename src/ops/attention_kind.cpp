#include "base/check.h"
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

std::optional<AttentionKind> find_attention_kind(std::string_view name) {
  for (const AttentionKind kind : {AttentionKind::kFlash2, AttentionKind::kCudnn, AttentionKind::kSimple})
    if (attention_kind_name(kind) == name) return kind;
  return std::nullopt;
}

AttentionSupport attention_support(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kFlash2: return {.max_head_dim = 256, .min_capability = 80};
    // cuDNN's frontend: packed statistics and determinism in backward not on 8.x and 12.x, and only 9.x goes beyond
    // 128, which is not tested.
    case AttentionKind::kCudnn: return {.max_head_dim = 128, .min_capability = 90, .end_capability = 120};
    case AttentionKind::kSimple: return {.max_head_dim = 256, .fp32 = true};
  }
  return {};
}

std::string attention_refusal(AttentionKind kind, const AttentionTarget& target) {
  const AttentionSupport support = attention_support(kind);
  if (target.head_dim <= 0 || target.head_dim % 8 != 0)
    return fmt::format("takes head dimensions that are multiples of 8, not {}", target.head_dim);
  if (target.head_dim > support.max_head_dim)
    return fmt::format("takes head dimensions up to {}, not {}", support.max_head_dim, target.head_dim);
  if (target.capability < support.min_capability || target.capability >= support.end_capability)
    return fmt::format("does not run on sm_{}", target.capability);
  if (target.fp32 && !support.fp32) return "works in BF16 only";
  return {};
}

AttentionKind deterministic_attention(const AttentionTarget& target) {
  return attention_refusal(AttentionKind::kFlash2, target).empty() ? AttentionKind::kFlash2 : AttentionKind::kSimple;
}

}  // namespace esm::ops
