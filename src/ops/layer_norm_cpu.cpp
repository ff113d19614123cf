#include <algorithm>

#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {

template <class T>
void layer_norm(const LayerNorm<T>& a) {
  const float inverse = 1.0f / static_cast<float>(a.cols);
  parallel_ranges(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    const T *weight = a.weight, *bias = a.bias;
    for (int64_t r = begin; r < end; ++r) {
      const T* x = a.x + r * a.cols;
      T* y = a.y + r * a.cols;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < a.cols; ++c) sum += load(x[c]);
      const float mean = sum * inverse;
      float squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < a.cols; ++c) squares += (load(x[c]) - mean) * (load(x[c]) - mean);
      const float rstd = 1.0f / std::sqrt(squares * inverse + a.eps);
#pragma omp simd
      for (int64_t c = 0; c < a.cols; ++c) store(y[c], (load(x[c]) - mean) * rstd * load(weight[c]) + load(bias[c]));
      a.mean[r] = mean;
      a.rstd[r] = rstd;
    }
  });
}

namespace {

// One row: dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight; partial sums of dy xhat and dy.
template <class T, bool kAccumulate, bool kOutput>
void backward_row(const LayerNormBackward<T>& a, int64_t r, float inverse, float* dweight, float* dbias) {
  const T *x = a.x + r * a.cols, *dy = a.dy + r * a.cols, *weight = a.weight, *bias = a.bias;
  T *dx = a.dx + r * a.cols, *y = kOutput ? a.y + r * a.cols : nullptr;
  const float mean = a.mean[r], rstd = a.rstd[r];
  float sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t c = 0; c < a.cols; ++c) {
    const float d = load(dy[c]), xhat = (load(x[c]) - mean) * rstd, g = d * load(weight[c]);
    sum_g += g;
    sum_gx += g * xhat;
    dweight[c] += d * xhat;
    dbias[c] += d;
  }
  const float mean_g = sum_g * inverse, mean_gx = sum_gx * inverse;
#pragma omp simd
  for (int64_t c = 0; c < a.cols; ++c) {
    const float xhat = (load(x[c]) - mean) * rstd, w = load(weight[c]);
    float d = rstd * (load(dy[c]) * w - mean_g - xhat * mean_gx);
    if (kAccumulate) d += load(dx[c]);
    store(dx[c], d);
    if (kOutput) store(y[c], xhat * w + load(bias[c]));
  }
}

template <class T, bool kAccumulate, bool kOutput>
void backward(const LayerNormBackward<T>& a) {
  const int64_t blocks = sum_blocks(a.rows);
  const float inverse = 1.0f / static_cast<float>(a.cols);
  parallel_ranges(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float *dweight = a.partials + 2 * b * a.cols, *dbias = dweight + a.cols;
      std::fill(dweight, dweight + 2 * a.cols, 0.0f);
      for (int64_t r = b * kSumRows; r < std::min(a.rows, (b + 1) * kSumRows); ++r)
        backward_row<T, kAccumulate, kOutput>(a, r, inverse, dweight, dbias);
    }
  });
  for (int64_t b = 0; b < blocks; ++b) {
    const float *dweight = a.partials + 2 * b * a.cols, *dbias = dweight + a.cols;
#pragma omp simd
    for (int64_t c = 0; c < a.cols; ++c) {
      a.dweight[c] += dweight[c];
      a.dbias[c] += dbias[c];
    }
  }
}

}  // namespace

template <class T>
void layer_norm_backward(const LayerNormBackward<T>& a) {
  if (a.accumulate && a.y != nullptr)
    backward<T, true, true>(a);
  else if (a.accumulate)
    backward<T, true, false>(a);
  else if (a.y != nullptr)
    backward<T, false, true>(a);
  else
    backward<T, false, false>(a);
}

template void layer_norm(const LayerNorm<float>&);
template void layer_norm(const LayerNorm<Bf16>&);
template void layer_norm_backward(const LayerNormBackward<float>&);
template void layer_norm_backward(const LayerNormBackward<Bf16>&);

}  // namespace esm::ops::cpu
