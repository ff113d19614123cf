#include "ops/attention_memory.h"

#include "support/catch.h"

namespace esm::ops {

TEST_CASE("workspace of cuDNN's attention is the measured one") {
  // bench_attention on an H200, cuDNN 9.19: 32,768 tokens, 20 heads, packs of at most 128 sequences of 1,024.
  const auto [head_dim, mebibytes] =
      GENERATE(table<int64_t, double>({{16, 122.6}, {24, 250.0}, {32, 242.6}, {64, 482.5}}));
  const AttentionMemory memory = attention_memory(
      AttentionKind::kCudnn, {.tokens = 32768, .heads = 20, .head_dim = head_dim, .capacity = 128, .max_seqlen = 1024});
  CHECK(static_cast<double>(memory.workspace_bytes) / (1 << 20) == Approx(mebibytes).margin(0.15));
  CHECK(memory.library_bytes == 0);
}

TEST_CASE("the likely attention is one that can") {
  const AttentionSizes sizes{.tokens = 65536, .heads = 20, .head_dim = 64, .capacity = 64, .max_seqlen = 1024};
  CHECK(likely_attention(sizes, at::kBFloat16, 90) == AttentionKind::kCudnn);
  CHECK(likely_attention(sizes, at::kBFloat16, 80) == AttentionKind::kFlash2);
  CHECK(likely_attention(sizes, at::kBFloat16, 75) == AttentionKind::kSimple);
  CHECK(likely_attention(sizes, at::kFloat, 90) == AttentionKind::kSimple);
  AttentionSizes many = sizes;
  many.tokens = 1 << 20;  // 4e9 elements of qkv
  CHECK(likely_attention(many, at::kBFloat16, 90) == AttentionKind::kFlash2);
}

TEST_CASE("packs of very many sequences go to the attention whose memory does not grow with them") {
  AttentionSizes sizes{.tokens = 65536, .heads = 20, .head_dim = 24, .capacity = 256, .max_seqlen = 1024};
  constexpr int64_t kUsual = 256;
  for (const AttentionKind kind : {AttentionKind::kCudnn, AttentionKind::kFlash2, AttentionKind::kSimple})
    CHECK(attention_within_memory(kind, sizes, kUsual) == kind);
  sizes.capacity = 32768;
  for (const AttentionKind kind : {AttentionKind::kCudnn, AttentionKind::kFlash2, AttentionKind::kSimple})
    CHECK(attention_within_memory(kind, sizes, kUsual) == AttentionKind::kSimple);
  sizes.head_dim = 64;  // cuDNN's workspace depends on tokens alone
  CHECK(attention_within_memory(AttentionKind::kCudnn, sizes, kUsual) == AttentionKind::kCudnn);
  sizes.deterministic = true;
  CHECK(attention_within_memory(AttentionKind::kCudnn, sizes, kUsual) == AttentionKind::kSimple);
}

}  // namespace esm::ops
