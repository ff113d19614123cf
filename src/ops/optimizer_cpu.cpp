#include <algorithm>
#include <vector>

#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {

double sum_of_squares(int64_t n, const float* x) {
  constexpr int64_t kBlock = 1 << 16;
  std::vector<double> sums((n + kBlock - 1) / kBlock);
  parallel_ranges(static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i)
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      sums[b] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace esm::ops::cpu
