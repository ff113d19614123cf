// CPU threads for our own loops: the same pool (LibTorch's OpenMP runtime) that its GEMMs use.
#pragma once
#include <cstdint>
#include <type_traits>

namespace esm::ops {

/// Threads that the calls below will use, from 1.
int thread_count();

namespace detail {
using RangeBody = void (*)(const void* closure, int64_t begin, int64_t end, int thread);
void run_ranges(int64_t n, int64_t grain, RangeBody body, const void* closure);
void run_items(int64_t n, RangeBody body, const void* closure);
}  // namespace detail

/// body(begin, end) over [0, n) cut in one range a thread, each a multiple of `grain` (but the last). body must not
/// throw.
template <class Body>
void parallel_ranges(int64_t n, int64_t grain, const Body& body) {
  detail::run_ranges(
      n, grain,
      [](const void* closure, int64_t begin, int64_t end, int) { (*static_cast<const Body*>(closure))(begin, end); },
      &body);
}

/// body(item, thread) for each item of [0, n), handed out one by one in order; thread in [0, thread_count()). For items
/// of unequal cost whose results do not depend on who computes them. body must not throw.
template <class Body>
void parallel_items(int64_t n, const Body& body) {
  detail::run_items(
      n,
      [](const void* closure, int64_t begin, int64_t, int thread) {
        (*static_cast<const Body*>(closure))(begin, thread);
      },
      &body);
}

/// Grain for loops over rows of `cols` elements: less work than this is done sooner by one thread than handed out.
constexpr int64_t row_grain(int64_t cols) {
  constexpr int64_t kElements = 16384;
  return cols >= kElements ? 1 : (kElements + cols - 1) / cols;
}

}  // namespace esm::ops
