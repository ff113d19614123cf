#include "ops/attention_heads.h"

namespace esm::ops::cpu {

template <class T>
void attention_avx2(const Attention<T>& a) {
  forward_heads<T, 8, 6>(a);
}

template <class T>
void attention_backward_avx2(const AttentionBackward<T>& a) {
  backward_heads<T, 8, 6>(a);
}

template void attention_avx2(const Attention<float>&);
template void attention_avx2(const Attention<Bf16>&);
template void attention_backward_avx2(const AttentionBackward<float>&);
template void attention_backward_avx2(const AttentionBackward<Bf16>&);

}  // namespace esm::ops::cpu
