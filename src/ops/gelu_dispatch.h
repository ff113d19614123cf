// The builds of the CPU GELU (gelu_simd.h); gelu_cpu.cpp chooses.
#pragma once
#include "ops/cpu_kernels.h"

namespace esm::ops::cpu {

template <class T>
void gelu_avx2(bool tanh_form, int64_t n, const T* x, T* y);
template <class T>
void gelu_avx512(bool tanh_form, int64_t n, const T* x, T* y);
template <class T>
void gelu_backward_avx2(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y);
template <class T>
void gelu_backward_avx512(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y);

}  // namespace esm::ops::cpu
