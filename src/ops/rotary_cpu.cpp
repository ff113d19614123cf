#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {

template <class T>
void rotary(const Rotary<T>& a) {
  const int64_t half = a.head_dim / 2;
  const float sign = a.inverse ? -1.0f : 1.0f;
  parallel_ranges(a.rows, row_grain(a.row_stride), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cos = a.cos + a.positions[r] * half;
      const float* sin = a.sin + a.positions[r] * half;
      for (int64_t v = 0; v < a.vectors * a.heads; ++v) {
        T* first = a.x + r * a.row_stride + v * a.head_dim;
        T* second = first + half;
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
          const float p = load(first[i]), q = load(second[i]), s = sign * sin[i];
          store(first[i], p * cos[i] - q * s);
          store(second[i], q * cos[i] + p * s);
        }
      }
    }
  });
}

template void rotary(const Rotary<float>&);
template void rotary(const Rotary<Bf16>&);

}  // namespace esm::ops::cpu
