// Work items of attention: one head of one sequence each. Included by the two builds of attention_simd.h.
#pragma once
#include "ops/attention_dispatch.h"
#include "ops/attention_simd.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {
namespace {

/// body(segment's first row, its length, head, thread) for every head of every segment that is not skipped.
template <class Body>
void for_each_head(const AttentionShape& s, const Body& body) {
  parallel_items(s.segments * s.heads, [&](int64_t item, int thread) {
    const int64_t segment = item / s.heads;
    const int64_t first = s.cu_seqlens[segment], n = s.cu_seqlens[segment + 1] - first;
    if (n > 0) body(first, n, item % s.heads, s.skip[segment] != 0, thread);
  });
}

/// rows of one head set to 0.
template <class T>
void clear_head(T* x, int64_t rows, int64_t stride, int64_t head_dim) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < head_dim; ++c) x[r * stride + c] = T{};
}

template <class T, int Lanes, int kRows>
void forward_heads(const Attention<T>& a) {
  const int64_t d = a.shape.head_dim, hidden = a.shape.heads * d, stride = 3 * hidden;
  for_each_head(a.shape, [&](int64_t first, int64_t n, int64_t head, bool skip, int thread) {
    const T* q = a.qkv + first * stride + head * d;
    T* out = a.out + first * hidden + head * d;
    if (skip) return clear_head(out, n, hidden, d);
    HeadAttention<T, Lanes, kRows>(n, d, stride, a.shape.scale)
        .forward(q, q + hidden, q + 2 * hidden, out, hidden, a.lse + head * a.shape.total_rows + first,
                 a.scratch + thread * a.shape.scratch_stride);
  });
}

template <class T, int Lanes, int kRows>
void backward_heads(const AttentionBackward<T>& a) {
  const int64_t d = a.shape.head_dim, hidden = a.shape.heads * d, stride = 3 * hidden;
  for_each_head(a.shape, [&](int64_t first, int64_t n, int64_t head, bool skip, int thread) {
    const T* q = a.qkv + first * stride + head * d;
    T* dq = a.dqkv + first * stride + head * d;
    if (skip) {
      for (int64_t part = 0; part < 3; ++part) clear_head(dq + part * hidden, n, stride, d);
      return;
    }
    HeadAttention<T, Lanes, kRows>(n, d, stride, a.shape.scale)
        .backward(q, q + hidden, q + 2 * hidden, a.out + first * hidden + head * d, a.dout + first * hidden + head * d,
                  hidden, a.lse + head * a.shape.total_rows + first, dq, dq + hidden, dq + 2 * hidden,
                  a.scratch + thread * a.shape.scratch_stride);
  });
}

}  // namespace
}  // namespace esm::ops::cpu
