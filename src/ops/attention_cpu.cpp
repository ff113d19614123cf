#include "ops/attention_dispatch.h"
#include "ops/cpu_width.h"

namespace esm::ops::cpu {

int64_t attention_scratch(int64_t max_seqlen, int64_t head_dim) {
  // The larger need: backward of the wider build (attention_simd.h): 16 lanes, blocks of 16 queries and 32 keys.
  constexpr int64_t kRows = 16, kKeys = 32;
  const int64_t n = (max_seqlen + kKeys - 1) / kKeys * kKeys, d = (head_dim + 15) / 16 * 16;
  return 5 * n * d + 2 * kRows * kKeys + 3 * kRows * d;
}

template <class T>
void attention(const Attention<T>& a) {
  if (use_avx512())
    attention_avx512(a);
  else
    attention_avx2(a);
}

template <class T>
void attention_backward(const AttentionBackward<T>& a) {
  if (use_avx512())
    attention_backward_avx512(a);
  else
    attention_backward_avx2(a);
}

template void attention(const Attention<float>&);
template void attention(const Attention<Bf16>&);
template void attention_backward(const AttentionBackward<float>&);
template void attention_backward(const AttentionBackward<Bf16>&);

}  // namespace esm::ops::cpu
