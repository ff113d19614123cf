#include <algorithm>

#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {

template <class T>
void fill_rows(int64_t rows, int64_t cols, const T* bias, const T* residual, float* y) {
  parallel_ranges(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = y + r * cols;
      if (residual != nullptr) {
        const T* from = residual + r * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) row[c] = load(from[c]) + load(bias[c]);
      } else {
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) row[c] = load(bias[c]);
      }
    }
  });
}

template <class T>
void add_column_sums(int64_t rows, int64_t cols, const T* x, float* partials, float* sums) {
  const int64_t blocks = sum_blocks(rows);
  parallel_ranges(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* partial = partials + b * cols;
      std::fill(partial, partial + cols, 0.0f);
      for (int64_t r = b * kSumRows; r < std::min(rows, (b + 1) * kSumRows); ++r) {
        const T* row = x + r * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) partial[c] += load(row[c]);
      }
    }
  });
  for (int64_t b = 0; b < blocks; ++b) {
    const float* partial = partials + b * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) sums[c] += partial[c];
  }
}

void to_float(int64_t n, const Bf16* from, float* to) {
  parallel_ranges(n, row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = load(from[i]);
  });
}

void to_bf16(int64_t n, const float* from, Bf16* to) {
  parallel_ranges(n, row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(to[i], from[i]);
  });
}

template void fill_rows(int64_t, int64_t, const float*, const float*, float*);
template void fill_rows(int64_t, int64_t, const Bf16*, const Bf16*, float*);
template void add_column_sums(int64_t, int64_t, const float*, float*, float*);
template void add_column_sums(int64_t, int64_t, const Bf16*, float*, float*);

}  // namespace esm::ops::cpu
