// CPU kernels on raw pointers, the twins of the CUDA kernels: one x_cpu.cpp for each x.cpp, compiled for x86-64-v3 with
// vectorized loops (CMakeLists.txt of the project). No torch here, so that files with special flags share no inline
// code with the rest. T is float or Bf16; arithmetic is FP32. Matrices are row-major and dense. All results are
// bit-equal for any number of threads: sums run over blocks of fixed size.
#pragma once
#include <cstdint>

#include "ops/cpu_math.h"

namespace esm::ops::cpu {

/// Rows that column sums (bias and LayerNorm gradients) take as one block: partial sums of a block are FP32, in row
/// order.
inline constexpr int64_t kSumRows = 128;
constexpr int64_t sum_blocks(int64_t rows) { return (rows + kSumRows - 1) / kSumRows; }

// --- linear ---
/// y[r, :] = bias (+ residual[r, :]); residual may be null.
template <class T>
void fill_rows(int64_t rows, int64_t cols, const T* bias, const T* residual, float* y);
/// sums[c] += sum over rows of x[:, c]. partials: [sum_blocks(rows), cols] scratch.
template <class T>
void add_column_sums(int64_t rows, int64_t cols, const T* x, float* partials, float* sums);
void to_float(int64_t n, const Bf16* from, float* to);
void to_bf16(int64_t n, const float* from, Bf16* to);

// --- layer_norm ---
template <class T>
struct LayerNorm {
  int64_t rows, cols;
  const T *x, *weight, *bias;
  float eps;
  T* y;
  float *mean, *rstd;  // [rows]
};
template <class T>
void layer_norm(const LayerNorm<T>& a);

template <class T>
struct LayerNormBackward {
  int64_t rows, cols;
  const T *x, *weight, *bias;
  const float *mean, *rstd;
  const T* dy;
  T* dx;  // receives or, with accumulate, adds
  bool accumulate;
  T* y;                    // null, or receives the forward output again; may be dy
  float *dweight, *dbias;  // [cols], added to
  float* partials;         // [sum_blocks(rows), 2, cols] scratch
};
template <class T>
void layer_norm_backward(const LayerNormBackward<T>& a);

// --- gelu ---
template <class T>
void gelu(bool tanh_form, int64_t n, const T* x, T* y);
/// dx = dy * gelu'(x); dx may be dy. y, unless null, receives gelu(x).
template <class T>
void gelu_backward(bool tanh_form, int64_t n, const T* x, const T* dy, T* dx, T* y);

// --- rotary ---
template <class T>
struct Rotary {
  int64_t rows, heads, head_dim;
  int64_t vectors;           // vectors of heads * head_dim to rotate at the start of each row (2: q and k)
  int64_t row_stride;        // elements between rows
  const int32_t* positions;  // [rows]
  const float *cos, *sin;    // [positions, head_dim / 2]
  bool inverse;
  T* x;  // in place
};
template <class T>
void rotary(const Rotary<T>& a);

// --- embedding ---
/// Token ids are below this.
inline constexpr int64_t kMaxVocabulary = 64;
template <class T>
void embedding(int64_t rows, int64_t cols, const uint8_t* tokens, const float* factors, const T* weight, T* y);
/// dweight[v, :] += sum over rows of factors[r] * dy[r, :] where tokens[r] = v.
template <class T>
void embedding_backward(int64_t rows, int64_t cols, int64_t vocabulary, const uint8_t* tokens, const float* factors,
                        const T* dy, float* dweight);

// --- cross_entropy ---
/// losses[r] and correct[r] of each row of logits + bias; at most kMaxVocabulary classes; dlogits (null: not wanted) =
/// d(sum of losses) / d(logits), may be logits.
template <class T>
void cross_entropy(int64_t rows, int64_t classes, const float* logits, const float* bias, const uint8_t* targets,
                   double label_smoothing, double* losses, uint8_t* correct, T* dlogits);

// --- attention: see attention.h for the mathematics ---
struct AttentionShape {
  int64_t heads, head_dim;
  float scale;
  int64_t total_rows;  // T: stride between heads of lse
  int64_t segments;
  const int32_t* cu_seqlens;  // [segments + 1]
  const uint8_t* skip;        // [segments] 1: rows become 0
  int64_t scratch_stride;     // attention_scratch()
};
template <class T>
struct Attention {
  AttentionShape shape;
  const T* qkv;    // [T, 3, heads, head_dim]
  T* out;          // [T, heads, head_dim]
  float* lse;      // [heads, T]
  float* scratch;  // [threads, scratch_stride]
};
template <class T>
struct AttentionBackward {
  AttentionShape shape;
  const T *qkv, *out, *dout;
  const float* lse;
  T* dqkv;
  float* scratch;
};
/// FP32 values of scratch that each thread needs (either direction).
int64_t attention_scratch(int64_t max_seqlen, int64_t head_dim);
template <class T>
void attention(const Attention<T>& a);
template <class T>
void attention_backward(const AttentionBackward<T>& a);

// --- optimizer ---
double sum_of_squares(int64_t n, const float* x);

}  // namespace esm::ops::cpu
