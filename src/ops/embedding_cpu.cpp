#include <algorithm>

#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {
namespace {
constexpr int64_t kColumns = 64;  // of a panel: a thread's sums of 64 token ids stay in L1
constexpr int64_t kSums = kMaxVocabulary * kColumns;
}  // namespace

template <class T>
void embedding(int64_t rows, int64_t cols, const uint8_t* tokens, const float* factors, const T* weight, T* y) {
  parallel_ranges(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* from = weight + tokens[r] * cols;
      T* to = y + r * cols;
      const float factor = factors[r];
      if (factor == 0.0f) {  // not a product: a weight that is not finite must not come through
        std::fill(to, to + cols, T{});
        continue;
      }
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) store(to[c], load(from[c]) * factor);
    }
  });
}

template <class T>
void embedding_backward(int64_t rows, int64_t cols, int64_t vocabulary, const uint8_t* tokens, const float* factors,
                        const T* dy, float* dweight) {
  parallel_ranges((cols + kColumns - 1) / kColumns, 1, [&](int64_t begin, int64_t end) {
    alignas(64) float sums[kSums];
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t c0 = panel * kColumns, width = std::min(kColumns, cols - c0);
      for (int64_t r0 = 0; r0 < rows; r0 += 8 * kSumRows) {
        std::fill(sums, sums + vocabulary * kColumns, 0.0f);
        for (int64_t r = r0; r < std::min(rows, r0 + 8 * kSumRows); ++r) {
          const float factor = factors[r];
          if (factor == 0.0f) continue;
          const T* from = dy + r * cols + c0;
          float* sum = sums + tokens[r] * kColumns;
#pragma omp simd
          for (int64_t c = 0; c < width; ++c) sum[c] += load(from[c]) * factor;
        }
        for (int64_t v = 0; v < vocabulary; ++v) {
          float* to = dweight + v * cols + c0;
#pragma omp simd
          for (int64_t c = 0; c < width; ++c) to[c] += sums[v * kColumns + c];
        }
      }
    }
  });
}

template void embedding(int64_t, int64_t, const uint8_t*, const float*, const float*, float*);
template void embedding(int64_t, int64_t, const uint8_t*, const float*, const Bf16*, Bf16*);
template void embedding_backward(int64_t, int64_t, int64_t, const uint8_t*, const float*, const float*, float*);
template void embedding_backward(int64_t, int64_t, int64_t, const uint8_t*, const float*, const Bf16*, float*);

}  // namespace esm::ops::cpu
