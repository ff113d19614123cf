#include "ops/gelu_dispatch.h"
#include "ops/gelu_simd.h"

namespace esm::ops::cpu {

template <class T>
void gelu_avx512(bool tanh_form, int64_t n, const T* x, T* y) {
  gelu_loop(tanh_form, n, x, y);
}

template <class T>
void gelu_backward_avx512(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y) {
  gelu_backward_loop(tanh_form, n, x, dy, dx, y);
}

template void gelu_avx512(bool, int64_t, const float*, float*);
template void gelu_avx512(bool, int64_t, const Bf16*, Bf16*);
template void gelu_backward_avx512(bool, int64_t, const float*, const float*, float*, float*);
template void gelu_backward_avx512(bool, int64_t, const Bf16*, const Bf16*, Bf16*, Bf16*);

}  // namespace esm::ops::cpu
