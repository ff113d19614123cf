// Attention of one head of one sequence in registers and near caches, for a vector width of Lanes floats. Included by
// attention_avx2_cpu.cpp and attention_avx512_cpu.cpp, which are compiled for those instruction sets; everything here
// has internal linkage. Mathematics: attention.h.
//
// Forward, a block of kRows queries meets all keys at once: scores [kRows, n] stay in L1 or L2, so the softmax needs no
// running rescale. Backward, kBackwardRows queries meet kKeys keys at a time, which stay in L1. Scores are kept times
// log2 e, so that the softmax is one of powers of 2. Every product is an outer-product loop over kRows x (2 vectors)
// accumulators: one vector load serves kRows multiply-adds.
#pragma once
#include <immintrin.h>

#include <cmath>
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
  static constexpr int kColumns = kRows >= 8 ? 8 : 4;  // of the head, at once; divides Lanes
  static constexpr int64_t kAhead = 12;                // tokens that packing fetches in advance

  static Vector& vec(float* p) { return *reinterpret_cast<Vector*>(p); }
  static const Vector& vec(const float* p) { return *reinterpret_cast<const Vector*>(p); }

  int64_t n, d;          // keys, head dim
  int64_t n_pad, d_pad;  // rounded up to kKeys and Lanes
  int64_t d_up;          // rounded up to kColumns
  int64_t row;           // stride of score rows: n_pad, moved off powers of two (they share cache sets)
  int64_t stride;        // elements between tokens of qkv
  float scale;

  HeadAttention(int64_t n_, int64_t d_, int64_t stride_, float scale_)
      : n(n_),
        d(d_),
        n_pad(up(n_, kKeys)),
        d_pad(up(d_, Lanes)),
        d_up(up(d_, kColumns)),
        row(n_pad % 256 == 0 ? n_pad + 16 : n_pad),
        stride(stride_),
        scale(scale_) {}

  /// The head's part of a token, for later: parts lie far apart, which hardware does not foresee.
  void prefetch(const T* token) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t c = 0; c < d; c += kLine) __builtin_prefetch(token + c);
  }

  /// a where it is the larger one, else b; b where one is NaN.
  [[gnu::always_inline]] static inline Vector larger(Vector a, Vector b) {
    if constexpr (Lanes == 16)
      return (Vector)_mm512_maskz_max_ps(-1, (__m512)a, (__m512)b);
    else
      return (Vector)_mm256_max_ps((__m256)a, (__m256)b);
  }

  /// 2^x for x up to 126, relative error 1e-7; x below -125 counts as -125; NaN stays NaN. The polynomial interpolates
  /// 2^r on [-0.5, 0.5] to 5e-9 and is exactly 1 at 0.
  [[gnu::always_inline]] static inline Vector exp2(Vector x) {
    x = larger(Vector{} - 125.0f, x);
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

  // The loop nests below are not inlined: each needs all registers for itself.

  /// to[j / kKeys, c, j % kKeys] = from[j, c]; keys beyond n become 0.
  [[gnu::noinline]] void pack_transposed(const T* from, float* to) const {
    for (int64_t j = 0; j < n_pad; j += 4) {
      float* column = to + j / kKeys * kKeys * d + j % kKeys;
      const int64_t rows = n - j < 4 ? n - j : 4;
      for (int64_t r = j + kAhead; r < n && r < j + kAhead + 4; ++r) prefetch(from + r * stride);
      int64_t c = 0;
      if constexpr (sizeof(T) == sizeof(float))
        for (; rows == 4 && c + 4 <= d; c += 4)
          transpose4(from + j * stride + c, stride, column + c * kKeys, kKeys, 1.0f);
      for (; c < d; ++c)
        for (int64_t r = 0; r < 4; ++r) column[c * kKeys + r] = r < rows ? load(from[(j + r) * stride + c]) : 0.0f;
    }
  }

  /// to[j, c] = factor * from[j / kKeys, c, j % kKeys] for n keys; `from` has d_up columns.
  [[gnu::noinline]] void unpack_transposed(const float* from, float factor, T* to) const {
    for (int64_t j = 0; j < n; j += 4) {
      const float* column = from + j / kKeys * kKeys * d_up + j % kKeys;
      const int64_t rows = n - j < 4 ? n - j : 4;
      for (int64_t c = 0; c < d; c += 4) {  // d_up is a multiple of four
        float block[4][4];
        transpose4(column + c * kKeys, kKeys, block[0], 4, factor);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t k = 0; k < 4 && c + k < d; ++k) store(to[(j + r) * stride + c + k], block[r][k]);
      }
    }
  }

  /// to[c, r] = factor * from[r, c] of a block of four by four.
  static void transpose4(const float* from, int64_t from_stride, float* to, int64_t to_stride, float factor) {
    using Four = VectorOf<4>::Type;
    const auto four = [&](int64_t row) { return factor * *reinterpret_cast<const Four*>(from + row * from_stride); };
    const Four a = four(0), b = four(1), c = four(2), e = four(3);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four ce_low = __builtin_shufflevector(c, e, 0, 4, 1, 5), ce_high = __builtin_shufflevector(c, e, 2, 6, 3, 7);
    const auto out = [&](int64_t row) -> Four& { return *reinterpret_cast<Four*>(to + row * to_stride); };
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

  /// a[r] = sum_c q[r, c] kt[c, j] for kRows rows of q (stride d_pad) and the kKeys keys of a part of kt.
  [[gnu::always_inline]] inline void score_tile(const float* q, const float* kt, Vector (&a)[kRows][2]) const {
    for (int64_t c = 0; c < d; ++c) {
      const Vector k0 = vec(kt + c * kKeys), k1 = vec(kt + c * kKeys + Lanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const float x = q[r * d_pad + c];
        a[r][0] += x * k0;
        a[r][1] += x * k1;
      }
    }
  }

  /// scores[r, j] = sum_c q[r, c] kt[c, j] for kRows rows of q (stride d_pad) and all padded keys.
  [[gnu::noinline]] void scores(const float* q, const float* kt, float* out) const {
    for (int64_t j = 0; j < n_pad; j += kKeys) {
      Vector a[kRows][2] = {};
      score_tile(q, kt + j * d, a);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        vec(out + r * row + j) = a[r][0];
        vec(out + r * row + j + Lanes) = a[r][1];
      }
    }
  }

  /// out[r, c] = (kAdd: +=) sum over j < keys of p[r, j] v[j, c] for kRows rows of p (stride p_row) and kVectors
  /// vectors of columns.
  template <int kVectors, bool kAdd>
  [[gnu::noinline]] void weigh_panel(int64_t keys, const float* p, int64_t p_row, const float* v, float* out) const {
    Vector a[kRows][kVectors] = {};
    if constexpr (kAdd)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) a[r][i] = vec(out + r * d_pad + i * Lanes);
    for (int64_t j = 0; j < keys; ++j) {
      Vector x[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) x[i] = vec(v + j * d_pad + i * Lanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) a[r][i] += p[r * p_row + j] * x[i];
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) vec(out + r * d_pad + i * Lanes) = a[r][i];
  }
  template <bool kAdd>
  void weigh(int64_t keys, const float* p, int64_t p_row, const float* v, float* out) const {
    int64_t c = 0;
    for (; c + 2 * Lanes <= d_pad; c += 2 * Lanes) weigh_panel<2, kAdd>(keys, p, p_row, v + c, out + c);
    if (c < d_pad) weigh_panel<1, kAdd>(keys, p, p_row, v + c, out + c);
  }

  /// out[c, j] += sum over kBackwardRows rows r of p[r, j] x[r, c] for kKeys keys: p [rows, kKeys], out [d_up, kKeys].
  [[gnu::noinline]] void spread(const float* p, const float* x, float* out) const {
    for (int64_t c = 0; c < d_up; c += kColumns) {
      float* to = out + c * kKeys;
      Vector a[kColumns][2];
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) {
        a[i][0] = vec(to + i * kKeys);
        a[i][1] = vec(to + i * kKeys + Lanes);
      }
      for (int64_t r = 0; r < kBackwardRows; ++r) {
        const Vector p0 = vec(p + r * kKeys), p1 = vec(p + r * kKeys + Lanes);
#pragma GCC unroll 16
        for (int i = 0; i < kColumns; ++i) {
          const float y = x[r * d_pad + c + i];
          a[i][0] += y * p0;
          a[i][1] += y * p1;
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) {
        vec(to + i * kKeys) = a[i][0];
        vec(to + i * kKeys + Lanes) = a[i][1];
      }
    }
  }

  /// p[r, j] = 2^(q k - shift[r]) and ds[r, j] = p (do v - delta[r]) of kRows rows and kKeys keys: parts of what
  /// pack_rows and pack_transposed make; p and ds of stride kKeys.
  [[gnu::noinline]] void gradient_tile(const float* q, const float* kt, const float* dout, const float* vt,
                                       const float* shift, const float* delta, float* p, float* ds) const {
    {
      Vector a[kRows][2] = {};
      score_tile(q, kt, a);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        vec(p + r * kKeys) = exp2(a[r][0] - shift[r]);
        vec(p + r * kKeys + Lanes) = exp2(a[r][1] - shift[r]);
      }
    }
    Vector a[kRows][2] = {};
    score_tile(dout, vt, a);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      vec(ds + r * kKeys) = vec(p + r * kKeys) * (a[r][0] - delta[r]);
      vec(ds + r * kKeys + Lanes) = vec(p + r * kKeys + Lanes) * (a[r][1] - delta[r]);
    }
  }

  /// Of all lanes, halves against each other.
  template <class Op>
  static float reduce(Vector v, const Op& op) {
    float lanes[Lanes];
    vec(lanes) = v;
#pragma GCC unroll 4
    for (int half = Lanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
    return lanes[0];
  }

  /// p[r, j] = 2^(p[r, j] - top[r]) over the n keys of kRows rows and next to nothing for the padded ones; maxima and
  /// sums.
  [[gnu::noinline]] void softmax(float* p, float* top, float* sum) const {
    Vector high[kRows], sums[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* row_p = p + r * row;
      for (int64_t j = n; j < n_pad; ++j) row_p[j] = -1e30f;
      high[r] = vec(row_p);
      for (int64_t j = Lanes; j < n_pad; j += Lanes) high[r] = larger(high[r], vec(row_p + j));
    }
    for (int r = 0; r < kRows; ++r) top[r] = reduce(high[r], [](float a, float b) { return a > b ? a : b; });
    for (int r = 0; r < kRows; ++r) {
      float* row_p = p + r * row;
      const float shift = top[r];
      Vector total = {};
      for (int64_t j = 0; j < n_pad; j += Lanes) {
        const Vector e = exp2(vec(row_p + j) - shift);
        vec(row_p + j) = e;
        total += e;
      }
      sums[r] = total;
    }
    for (int r = 0; r < kRows; ++r) sum[r] = reduce(sums[r], [](float a, float b) { return a + b; });
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
      float top[kRows], sum[kRows], inverse[kRows];
      softmax(p, top, sum);
      for (int64_t r = 0; r < rows; ++r) {
        inverse[r] = 1.0f / sum[r];
        lse[i + r] = top[r] * kLn2 + std::log(sum[r]);
      }
      weigh<false>(n, p, row, vs, os);
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
    float* ds = p + kBackwardRows * kKeys;
    float* qs = ds + kBackwardRows * kKeys;
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
      float shift[kBackwardRows] = {}, delta[kBackwardRows] = {};
      pack_rows(dout + i * out_stride, out_stride, rows, kBackwardRows, 1.0f, dos);
      for (int64_t r = 0; r < rows; ++r) {
        shift[r] = lse[i + r] * kLog2E;
        for (int64_t c = 0; c < d; ++c) delta[r] += dos[r * d_pad + c] * load(out[(i + r) * out_stride + c]);
      }
      std::memset(dqs, 0, sizeof(float) * kBackwardRows * d_pad);
      for (int64_t j = 0; j < n_pad; j += kKeys) {
        for (int64_t r = 0; r < kBackwardRows; r += kRows)
          gradient_tile(qs + r * d_pad, kt + j * d, dos + r * d_pad, vt + j * d, shift + r, delta + r, p + r * kKeys,
                        ds + r * kKeys);
        for (int64_t r = 0; r < kBackwardRows; r += kRows)
          weigh<true>(n - j < kKeys ? n - j : kKeys, ds + r * kKeys, kKeys, ks + j * d_pad, dqs + r * d_pad);
        spread(p, dos, dvs + j * d_up);
        spread(ds, qs, dks + j * d_up);
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < d; ++c) store(dq[(i + r) * stride + c], scale * dqs[r * d_pad + c]);
    }
    unpack_transposed(dks, kLn2, dk);  // qs are times log2 e
    unpack_transposed(dvs, 1.0f, dv);
  }
};

}  // namespace
}  // namespace esm::ops::cpu
