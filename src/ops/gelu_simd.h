// GELU, forward and backward. Included by gelu_avx2_cpu.cpp and gelu_avx512_cpu.cpp, which are compiled for those
// instruction sets; everything here has internal linkage. The arithmetic of an element is the same in both.
#pragma once
#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {
namespace {

struct Gelu {
  float value, slope;
};

// x Phi(x) with Phi(x) = erfc(-x / sqrt 2) / 2. erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.3 z), z >= 0: P interpolates
// at Chebyshev nodes of z in [0, 10], relative error 2.5e-8 (so the negative tail keeps its digits too).
inline Gelu gelu_erf(float x) {
  const float z = std::fabs(x) * 0.70710678118654752f;
  const float t = 1.0f / (1.0f + 0.3f * z);
  float p = -0.1307708773f;
  p = p * t + 0.4919342706f;
  p = p * t - 0.5261516628f;
  p = p * t + 0.5645142422f;
  p = p * t - 0.1069833625f;
  p = p * t + 0.2205391691f;
  p = p * t + 0.1467960222f;
  p = p * t + 0.1709491199f;
  p = p * t + 0.1691730577f;
  const float e = exp(-0.5f * x * x);
  const float tail = 0.5f * e * (t * p);
  const float cdf = x < 0.0f ? tail : 1.0f - tail;
  return {x * cdf, cdf + x * (e * 0.39894228040143268f)};
}

// x/2 (1 + tanh u) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
inline Gelu gelu_tanh(float x) {
  constexpr float kTwoRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
  const float square = x * x;
  const float e = exp(-kTwoRoot * x * (1.0f + 0.044715f * square));
  const float s = 1.0f / (1.0f + e);  // and 1 - s = e s, which keeps its digits when s is near 1
  return {x * s, s + x * s * (e * s) * kTwoRoot * (1.0f + 3.0f * 0.044715f * square)};
}

template <class T, class Function>
void forward(int64_t n, const T* x, T* y, Function f) {
  parallel_ranges(n, row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(y[i], f(load(x[i])).value);
  });
}

// Where dy is 0, dx is +0: statistics of codes take a -0 for a value that was lost.
template <class T, class Function>
void backward(int64_t n, const T* x, const T* dy, T* dx, T* y, Function f) {
  parallel_ranges(n, row_grain(1), [&](int64_t begin, int64_t end) {
    if (y != nullptr) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const Gelu g = f(load(x[i]));
        store(y[i], g.value);
        store(dx[i], load(dy[i]) * g.slope + 0.0f);
      }
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) store(dx[i], load(dy[i]) * f(load(x[i])).slope + 0.0f);
    }
  });
}

template <class T>
void gelu_loop(bool tanh_form, int64_t n, const T* x, T* y) {
  if (tanh_form)
    forward(n, x, y, [](float v) { return gelu_tanh(v); });
  else
    forward(n, x, y, [](float v) { return gelu_erf(v); });
}

template <class T>
void gelu_backward_loop(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y) {
  if (tanh_form)
    backward(n, x, dy, dx, y, [](float v) { return gelu_tanh(v); });
  else
    backward(n, x, dy, dx, y, [](float v) { return gelu_erf(v); });
}

}  // namespace
}  // namespace esm::ops::cpu
