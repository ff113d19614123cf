#include "ops/cpu_width.h"
#include "ops/gelu_dispatch.h"

namespace esm::ops::cpu {

template <class T>
void gelu(bool tanh_form, int64_t n, const T* x, T* y) {
  if (use_avx512())
    gelu_avx512(tanh_form, n, x, y);
  else
    gelu_avx2(tanh_form, n, x, y);
}

template <class T>
void gelu_backward(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y) {
  if (use_avx512())
    gelu_backward_avx512(tanh_form, n, x, dy, dx, y);
  else
    gelu_backward_avx2(tanh_form, n, x, dy, dx, y);
}

template void gelu(bool, int64_t, const float*, float*);
template void gelu(bool, int64_t, const Bf16*, Bf16*);
template void gelu_backward(bool, int64_t, const float*, const float*, float*, float*);
template void gelu_backward(bool, int64_t, const Bf16*, const Bf16*, Bf16*, Bf16*);

}  // namespace esm::ops::cpu
