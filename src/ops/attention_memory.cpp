#include "ops/attention_memory.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/narrow.h"
#include "ops/memory_part.h"

namespace esm::ops {
namespace {

/// FP32 sums of dq, dk, dv over the packed rows and one of the softmax; head dimensions that are no multiple of 16 take
/// another kernel, with FP32 sums of dq over rows padded to the longest sequence. Deterministic, it keeps all of dS.
int64_t cudnn_workspace_bytes(const AttentionSizes& s) {
  constexpr int64_t kFloat = 4, kBf16 = 2;
  if (s.deterministic) return kBf16 * s.capacity * s.heads * s.max_seqlen * s.max_seqlen;
  if (s.head_dim % 16 == 0) return kFloat * s.tokens * s.heads * (3 * s.head_dim + 1);
  return kFloat * s.capacity * s.max_seqlen * s.heads * (s.head_dim + 1);
}

int64_t flash2_library_bytes(const AttentionSizes& s) {
  constexpr int64_t kFloat = 4, kBf16 = 2, kRowPadding = 128;  // a sequence
  const int64_t rows = s.tokens + kRowPadding * s.capacity;
  const int64_t head_dim = s.head_dim <= 192 ? round_up<int64_t>(s.head_dim, 32) : 256;
  const int64_t tensor = rounded_block_bytes(kBf16 * s.tokens * s.heads * s.head_dim);  // dq, dk, dv; out before them
  constexpr int64_t kMultiprocessors = 132;                                             // H200
  const int64_t blocks = s.capacity * s.heads, copies = s.deterministic ? (kMultiprocessors + blocks - 1) / blocks : 1;
  const int64_t sums = kFloat * copies * rows * s.heads * head_dim, softmax = kFloat * rows * s.heads;
  return 3 * tensor + rounded_block_bytes(sums) + rounded_block_bytes(softmax);
}

bool can(AttentionKind kind, const AttentionSizes& s, int capability) {
  if (kind == AttentionKind::kCudnn && s.tokens * 3 * s.heads * s.head_dim > std::numeric_limits<int32_t>::max())
    return false;  // it counts elements in 32 bits
  return attention_refusal(kind, {.head_dim = s.head_dim, .capability = capability}).empty();
}

}  // namespace

AttentionMemory attention_memory(AttentionKind kind, const AttentionSizes& s) {
  switch (kind) {
    case AttentionKind::kFlash2: return {.library_bytes = flash2_library_bytes(s)};
    case AttentionKind::kCudnn: return {.workspace_bytes = cudnn_workspace_bytes(s)};
    case AttentionKind::kSimple: return {.workspace_bytes = 4 * s.tokens * s.heads};
  }
  fail<InternalError>("no such attention backend");
}

AttentionKind attention_within_memory(AttentionKind kind, const AttentionSizes& sizes, int64_t usual) {
  constexpr int64_t kLeast = int64_t{1} << 30;
  const auto bytes = [&](int64_t capacity) {
    AttentionSizes other = sizes;
    other.capacity = capacity;
    const AttentionMemory memory = attention_memory(kind, other);
    return memory.workspace_bytes + memory.library_bytes;
  };
  return bytes(sizes.capacity) > std::max(kLeast, 2 * bytes(usual)) ? AttentionKind::kSimple : kind;
}

AttentionKind likely_attention(const AttentionSizes& s, at::ScalarType type, int capability) {
  if (type != at::kBFloat16) return AttentionKind::kSimple;
  if (can(AttentionKind::kCudnn, s, capability)) return AttentionKind::kCudnn;
  return can(AttentionKind::kFlash2, s, capability) ? AttentionKind::kFlash2 : AttentionKind::kSimple;
}

}  // namespace esm::ops
