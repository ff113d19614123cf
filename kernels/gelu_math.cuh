// GELU and its slope at one point, accurate to the element type.
#pragma once
#include "kernels/gelu.h"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"

namespace esm::kernels {

struct GeluPoint {
  float value, slope;
};

template <class T, GeluForm kForm>
struct Gelu;

template <>
struct Gelu<float, GeluForm::kErf> {
  static __device__ GeluPoint at(float x) {
    const float t = 1.0f / (1.0f + 0.3f * 0.70710678118654752f * fabsf(x));
    float p = -0.1307708773f;
    p = p * t + 0.4919342706f;
    p = p * t - 0.5261516628f;
    p = p * t + 0.5645142422f;
    p = p * t - 0.1069833625f;
    p = p * t + 0.2205391691f;
    p = p * t + 0.1467960222f;
    p = p * t + 0.1709491199f;
    p = p * t + 0.1691730577f;
    const float e = expf(-0.5f * x * x);
    const float tail = 0.5f * e * (t * p);
    const float cdf = x < 0.0f ? tail : 1.0f - tail;
    return {x * cdf, cdf + x * (e * 0.39894228040143268f)};
  }
};

// The factor of t and the coefficients are fitted together: Phi(-a) within 2.9e-5 relative for a in [0, 14].
template <>
struct Gelu<Bf16, GeluForm::kErf> {
  static __device__ GeluPoint at(float x) {
    const float t = fast_reciprocal(fmaf(0.37652922f, fabsf(x), 1.0f));
    const float e = fast_exp2(x * x * -0.72134752044448170f);
    float p = -0.0909691975f;
    p = fmaf(p, t, 0.1979330182f);
    p = fmaf(p, t, 0.0853126645f);
    p = fmaf(p, t, 0.1580114514f);
    p = fmaf(p, t, 0.1496977657f);
    const float tail = e * (t * p);
    const float cdf = x < 0.0f ? tail : 1.0f - tail;
    return {x * cdf, fmaf(x * 0.39894228040143268f, e, cdf)};
  }
};

// x/2 (1 + tanh u) = x s, s = 1 / (1 + e^(-2u)), 2u = kTwoRoot x (1 + 0.044715 x^2).
constexpr float kTwoRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)

template <>
struct Gelu<float, GeluForm::kTanh> {
  static __device__ GeluPoint at(float x) {
    const float square = x * x;
    const float e = expf(-kTwoRoot * x * (1.0f + 0.044715f * square));
    const float s = 1.0f / (1.0f + e);
    const float rest = x > 0.0f ? e * s : 1.0f - s;  // 1 - s, without cancellation where the polynomial is large
    return {x * s, s + x * s * rest * kTwoRoot * (1.0f + 3.0f * 0.044715f * square)};
  }
};

template <>
struct Gelu<Bf16, GeluForm::kTanh> {
  static __device__ GeluPoint at(float x) {
    constexpr float kLog2E = 1.4426950408889634f;
    const float square = x * x;
    const float e = fast_exp2(x * fmaf(-kLog2E * kTwoRoot * 0.044715f, square, -kLog2E * kTwoRoot));
    const float s = fast_reciprocal(1.0f + e);
    const float value = x * s;
    return {value, fmaf(value * (1.0f - s), fmaf(kTwoRoot * 3.0f * 0.044715f, square, kTwoRoot), s)};
  }
};

}  // namespace esm::kernels
