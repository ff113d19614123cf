#include "ops/parallel.h"

#include <omp.h>

#include <algorithm>

namespace esm::ops {

int thread_count() { return omp_get_max_threads(); }

namespace detail {

void run_ranges(int64_t n, int64_t grain, RangeBody body, const void* closure) {
  if (n <= 0) return;
  const int64_t blocks = (n + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(blocks, omp_get_max_threads()));
  if (threads == 1) return body(closure, 0, n, 0);
    // The whole pool is always woken: libgomp rebuilds it when team sizes change.
#pragma omp parallel
  {
    const int64_t thread = omp_get_thread_num();
    if (thread < threads) {
      const int64_t begin = blocks * thread / threads * grain;
      const int64_t end = std::min(n, blocks * (thread + 1) / threads * grain);
      body(closure, begin, end, static_cast<int>(thread));
    }
  }
}

void run_items(int64_t n, RangeBody body, const void* closure) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t item = 0; item < n; ++item) body(closure, item, item + 1, omp_get_thread_num());
}

}  // namespace detail
}  // namespace esm::ops
