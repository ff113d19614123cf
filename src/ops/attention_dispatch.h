// The two builds of attention_simd.h.
#pragma once
#include "ops/cpu_kernels.h"

namespace esm::ops::cpu {

template <class T>
void attention_avx2(const Attention<T>& a);
template <class T>
void attention_backward_avx2(const AttentionBackward<T>& a);
template <class T>
void attention_avx512(const Attention<T>& a);
template <class T>
void attention_backward_avx512(const AttentionBackward<T>& a);

}  // namespace esm::ops::cpu
