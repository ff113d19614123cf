// Attention of one head of one sequence in registers and near caches, for a vector width of Lanes floats. Included by
// attention_avx2_cpu.cpp and attention_avx512_cpu.cpp, which are compiled for those instruction sets; everything here
// has internal linkage. Mathematics: attention.h.
//
// A block of kRows queries meets all keys at once: scores [kRows, n] stay in L1 or L2, so the softmax needs no running
// rescale, and backward forms dQ of the block directly. Scores are kept times log2 e, so that the softmax is one of
// powers of 2. Every product is an outer-product loop over kRows x (2 vectors) accumulators: one vector load serves
// kRows multiply-adds.
#pragma once
#include <cstring>

#include "ops/cpu_kernels.h"

namespace esm::ops::cpu {
namespace {

constexpr int64_t up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

template <int Lanes>
struct VectorOf;
template <>
struct VectorOf<4> {
  typedef float Type __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct VectorOf<8> {
  typedef float Type __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct VectorOf<16> {
  typedef float Type __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(64), aligned(4), may_alias));
};

constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

template <class T, int Lanes, int kRows>
struct HeadAttention {
  using Vector = typename VectorOf<Lanes>::Type;
  using Bits = typename VectorOf<Lanes>::Bits;
  static constexpr int64_t kKeys = 2 * Lanes;  // keys per step of a score loop
  static constexpr int64_t kBackwardRows = 2 * kRows;
  static constexpr int64_t kAhead = 12;  // tokens that packing fetches in advance

  static Vector& vec(float* p) { return *reinterpret_cast<Vector*>(p); }
  static const Vector& vec(const float* p) { return *reinterpret_cast<const Vector*>(p); }

  int64_t n, d;          // keys, head dim
  int64_t n_pad, d_pad;  // rounded up to kKeys and Lanes
  int64_t row;           // stride of score rows: n_pad, moved off powers of two (they share cache sets)
  int64_t stride;        // elements between tokens of qkv
  float scale;

  HeadAttention(int64_t n_, int64_t d_, int64_t stride_, float scale_)
      : n(n_),
        d(d_),
        n_pad(up(n_, kKeys)),
        d_pad(up(d_, Lanes)),
        row(n_pad % 256 == 0 ? n_pad + 16 : n_pad),
        stride(stride_),
        scale(scale_) {}

  /// The head's part of a token, for later: parts lie far apart, which hardware does not foresee.
  void prefetch(const T* token) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t c = 0; c < d; c += kLine) __builtin_prefetch(token + c);
  }

  // The loop nests below are not inlined: each needs all registers for itself.

  /// to[j / kKeys, c, j % kKeys] = from[j, c]; keys beyond n become 0.
  [[gnu::noinline]] void pack_transposed(const T* from, float* to) const {
    for (int64_t j = 0; j < n_pad; j += 4) {
      float* column = to + j / kKeys * kKeys * d + j % kKeys;
      const int64_t rows = n - j < 4 ? n - j : 4;
      for (int64_t r = j + kAhead; r < n && r < j + kAhead + 4; ++r) prefetch(from + r * stride);
      int64_t c = 0;
      if constexpr (sizeof(T) == sizeof(float))
        for (; rows == 4 && c + 4 <= d; c += 4) transpose4(from + j * stride + c, column + c * kKeys);
      for (; c < d; ++c)
        for (int64_t r = 0; r < 4; ++r) column[c * kKeys + r] = r < rows ? load(from[(j + r) * stride + c]) : 0.0f;
    }
  }

  /// to[c, r] = from[r, c] of a block of four by four.
  void transpose4(const float* from, float* to) const {
    using Four = VectorOf<4>::Type;
    const auto four = [](const float* p) { return *reinterpret_cast<const Four*>(p); };
    const Four a = four(from), b = four(from + stride), c = four(from + 2 * stride), e = four(from + 3 * stride);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four ce_low = __builtin_shufflevector(c, e, 0, 4, 1, 5), ce_high = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    const auto out = [&](int64_t row) -> Four& { return *reinterpret_cast<Four*>(to + row * kKeys); };
    out(0) = __builtin_shufflevector(ab_low, ce_low, 0, 1, 4, 5);
    out(1) = __builtin_shufflevector(ab_low, ce_low, 2, 3, 6, 7);
    out(2) = __builtin_shufflevector(ab_high, ce_high, 0, 1, 4, 5);
    out(3) = __builtin_shufflevector(ab_high, ce_high, 2, 3, 6, 7);
  }

  /// to[j, c] = factor * from[j, c] for `rows` rows of stride `from_stride`; columns beyond d become 0, so do the rows
  /// up to `padded_rows`.
  [[gnu::noinline]] void pack_rows(const T* from, int64_t from_stride, int64_t rows, int64_t padded_rows, float factor,
                                   float* to) const {
    for (int64_t j = 0; j < rows; ++j) {
      if (j + kAhead < rows) prefetch(from + (j + kAhead) * from_stride);
      for (int64_t c = 0; c < d; ++c) to[j * d_pad + c] = factor * load(from[j * from_stride + c]);
      for (int64_t c = d; c < d_pad; ++c) to[j * d_pad + c] = 0.0f;
    }
    std::memset(to + rows * d_pad, 0, sizeof(float) * (padded_rows - rows) * d_pad);
  }

  /// scores[r, j] = sum_c q[r, c] kt[c, j] for kRows rows of q (stride d_pad) and all padded keys.
  [[gnu::noinline]] void scores(const float* q, const float* kt, float* out) const {
    for (int64_t j = 0; j < n_pad; j += kKeys) {
      Vector a[kRows][2] = {};
      for (int64_t c = 0; c < d; ++c) {
        const Vector k0 = vec(kt + j * d + c * kKeys), k1 = vec(kt + j * d + c * kKeys + Lanes);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const float x = q[r * d_pad + c];
          a[r][0] += x * k0;
          a[r][1] += x * k1;
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        vec(out + r * row + j) = a[r][0];
        vec(out + r * row + j + Lanes) = a[r][1];
      }
    }
  }

  /// out[r, c] = sum over j < n of p[r, j] v[j, c] for kRows rows of p (stride row) and kVectors vectors of columns.
  template <int kVectors>
  [[gnu::noinline]] void weigh_panel(const float* p, const float* v, float* out) const {
    Vector a[kRows][kVectors] = {};
    for (int64_t j = 0; j < n; ++j) {
      Vector x[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) x[i] = vec(v + j * d_pad + i * Lanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) a[r][i] += p[r * row + j] * x[i];
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) vec(out + r * d_pad + i * Lanes) = a[r][i];
  }
  void weigh(const float* p, const float* v, float* out) const {
    int64_t c = 0;
    for (; c + 2 * Lanes <= d_pad; c += 2 * Lanes) weigh_panel<2>(p, v + c, out + c);
    if (c < d_pad) weigh_panel<1>(p, v + c, out + c);
  }

  /// out[j, c] += sum over `rows` rows r of p[r, j] x[r, c], for all keys.
  template <int kVectors>
  [[gnu::noinline]] void spread_panel(int64_t rows, const float* p, const float* x, float* out) const {
    for (int64_t j = 0; j < n_pad; j += kSpread) {
      Vector a[kSpread][kVectors];
#pragma GCC unroll 16
      for (int s = 0; s < kSpread; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) a[s][i] = vec(out + (j + s) * d_pad + i * Lanes);
      for (int64_t r = 0; r < rows; ++r) {
        Vector y[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) y[i] = vec(x + r * d_pad + i * Lanes);
#pragma GCC unroll 16
        for (int s = 0; s < kSpread; ++s)
#pragma GCC unroll 4
          for (int i = 0; i < kVectors; ++i) a[s][i] += p[r * row + j + s] * y[i];
      }
#pragma GCC unroll 16
      for (int s = 0; s < kSpread; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) vec(out + (j + s) * d_pad + i * Lanes) = a[s][i];
    }
  }
  static constexpr int kSpread = kRows >= 8 ? 8 : 4;  // divides kKeys
  void spread(int64_t rows, const float* p, const float* x, float* out) const {
    int64_t c = 0;
    for (; c + 2 * Lanes <= d_pad; c += 2 * Lanes) spread_panel<2>(rows, p, x + c, out + c);
    if (c < d_pad) spread_panel<1>(rows, p, x + c, out + c);
  }

  /// 2^x for x up to 126, relative error 1e-7; x below -125 counts as -125; NaN stays NaN. The polynomial interpolates
  /// 2^r on [-0.5, 0.5] to 5e-9 and is exactly 1 at 0.
  [[gnu::always_inline]] static inline Vector exp2(Vector x) {
    x = x < -125.0f ? Vector{} - 125.0f : x;
    const Vector shifted = x + 12582912.0f;  // 1.5 * 2^23: rounds to an integer, found in the low bits
    const Vector r = x - (shifted - 12582912.0f);
    Vector p = r * 0.000154531629451f + 0.00133908633647f;
    p = p * r + 0.00961808255728f;
    p = p * r + 0.0555035711422f;
    p = p * r + 0.240226507606f;
    p = p * r + 0.693147188026f;
    p = p * r + 1.0f;
    return (Vector)((Bits)p + ((Bits)shifted << 23));
  }

  /// p = 2^(p - max) over the n keys, and next to nothing for the padded ones; returns the sum, and the maximum through
  /// `top`.
  [[gnu::noinline]] float softmax_row(float* p, float& top) const {
    for (int64_t j = n; j < n_pad; ++j) p[j] = -1e30f;
    Vector high = vec(p);
    for (int64_t j = Lanes; j < n_pad; j += Lanes) high = high > vec(p + j) ? high : vec(p + j);
    top = high[0];
    for (int i = 1; i < Lanes; ++i) top = high[i] > top ? high[i] : top;
    Vector sums = {};
    for (int64_t j = 0; j < n_pad; j += Lanes) {
      const Vector e = exp2(vec(p + j) - top);
      vec(p + j) = e;
      sums += e;
    }
    float sum = 0;
    for (int i = 0; i < Lanes; ++i) sum += sums[i];
    return sum;
  }

  /// q, k, v point at the head's first element of token 0; out likewise, of stride `out_stride`; lse [n].
  void forward(const T* q, const T* k, const T* v, T* out, int64_t out_stride, float* lse, float* scratch) const {
    float* kt = scratch;
    float* vs = kt + d * n_pad;
    float* p = vs + n_pad * d_pad;
    float* qs = p + kRows * row;
    float* os = qs + kRows * d_pad;
    pack_transposed(k, kt);
    pack_rows(v, stride, n, n, 1.0f, vs);
    for (int64_t i = 0; i < n; i += kRows) {
      const int64_t rows = n - i < kRows ? n - i : kRows;
      for (int64_t r = i + rows; r < n && r < i + rows + kRows; ++r) prefetch(q + r * stride);
      pack_rows(q + i * stride, stride, rows, kRows, scale * kLog2E, qs);
      scores(qs, kt, p);
      float inverse[kRows];
      for (int64_t r = 0; r < rows; ++r) {
        float top;
        const float sum = softmax_row(p + r * row, top);
        inverse[r] = 1.0f / sum;
        lse[i + r] = top * kLn2 + std::log(sum);
      }
      weigh(p, vs, os);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < d; ++c) store(out[(i + r) * out_stride + c], os[r * d_pad + c] * inverse[r]);
    }
  }

  /// As forward(); dq, dk, dv have the layout of q, k, v.
  void backward(const T* q, const T* k, const T* v, const T* out, const T* dout, int64_t out_stride, const float* lse,
                T* dq, T* dk, T* dv, float* scratch) const {
    float* kt = scratch;
    float* vt = kt + d * n_pad;
    float* ks = vt + d * n_pad;
    float* dks = ks + n_pad * d_pad;
    float* dvs = dks + n_pad * d_pad;
    float* p = dvs + n_pad * d_pad;
    float* ds = p + kBackwardRows * row;
    float* qs = ds + kBackwardRows * row;
    float* dos = qs + kBackwardRows * d_pad;
    float* dqs = dos + kBackwardRows * d_pad;
    pack_transposed(k, kt);
    pack_transposed(v, vt);
    pack_rows(k, stride, n, n, 1.0f, ks);
    std::memset(dks, 0, sizeof(float) * 2 * n_pad * d_pad);
    for (int64_t i = 0; i < n; i += kBackwardRows) {
      const int64_t rows = n - i < kBackwardRows ? n - i : kBackwardRows;
      for (int64_t r = i + rows; r < n && r < i + rows + kBackwardRows; ++r) {
        prefetch(q + r * stride);
        prefetch(dout + r * out_stride);
        prefetch(out + r * out_stride);
      }
      pack_rows(q + i * stride, stride, rows, kBackwardRows, scale * kLog2E, qs);
      pack_rows(dout + i * out_stride, out_stride, rows, kBackwardRows, 1.0f, dos);
      for (int64_t r = 0; r < rows; r += kRows) {
        scores(qs + r * d_pad, kt, p + r * row);
        scores(dos + r * d_pad, vt, ds + r * row);
      }
      for (int64_t r = 0; r < rows; ++r) {
        float delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t c = 0; c < d; ++c) delta += dos[r * d_pad + c] * load(out[(i + r) * out_stride + c]);
        const float shift = lse[i + r] * kLog2E;
        float *pr = p + r * row, *dr = ds + r * row;
        for (int64_t j = 0; j < n_pad; j += Lanes) {
          const Vector e = exp2(vec(pr + j) - shift);
          vec(pr + j) = e;
          vec(dr + j) = e * (vec(dr + j) - delta);
        }
      }
      for (int64_t r = 0; r < rows; r += kRows) weigh(ds + r * row, ks, dqs + r * d_pad);
      spread(rows, p, dos, dvs);
      spread(rows, ds, qs, dks);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < d; ++c) store(dq[(i + r) * stride + c], scale * dqs[r * d_pad + c]);
    }
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < d; ++c) {
        store(dk[j * stride + c], kLn2 * dks[j * d_pad + c]);  // qs are times log2 e
        store(dv[j * stride + c], dvs[j * d_pad + c]);
      }
  }
};

}  // namespace
}  // namespace esm::ops::cpu
