#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/attention_simple.h"

namespace esm::kernels {
namespace {

constexpr int kWarps = 8;     // rows a block
constexpr int kMaxLanes = 8;  // elements of a row that one lane holds: head_dim up to 256

__device__ float load(float x) { return x; }
__device__ float load(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void store(float& to, float x) { to = x; }
__device__ void store(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

/// One row of one head, spread over a warp: lane l has elements l, l + 32, ...
struct Row {
  float x[kMaxLanes];

  template <class T>
  __device__ void read(const T* row, int head_dim, int lane) {
#pragma unroll
    for (int i = 0; i < kMaxLanes; ++i) {
      const int c = lane + 32 * i;
      x[i] = c < head_dim ? load(row[c]) : 0.0f;
    }
  }
  template <class T>
  __device__ void write(T* row, int head_dim, int lane, float factor) const {
#pragma unroll
    for (int i = 0; i < kMaxLanes; ++i) {
      const int c = lane + 32 * i;
      if (c < head_dim) store(row[c], x[i] * factor);
    }
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kMaxLanes; ++i) x[i] = 0.0f;
  }
  __device__ void add(const Row& other, float factor) {
#pragma unroll
    for (int i = 0; i < kMaxLanes; ++i) x[i] += factor * other.x[i];
  }
  __device__ float dot(const Row& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMaxLanes; ++i) sum += x[i] * other.x[i];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
  }
};

struct Range {
  int begin, end;
};

/// Rows of the sequence that holds `row`.
__device__ Range sequence_of(const int32_t* cu_seqlens, int capacity, int row) {
  int low = 0, high = capacity;  // cu_seqlens[low] <= row < cu_seqlens[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cu_seqlens[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return {cu_seqlens[low], cu_seqlens[high]};
}

struct Place {
  int64_t row;
  int head, lane;
  bool inside;
};

/// Blocks count rows in x and heads in y.
__device__ Place place(int64_t tokens) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / 32;
  return {row, static_cast<int>(blockIdx.y), static_cast<int>(threadIdx.x % 32), row < tokens};
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_kernel(AttentionSimpleArgs a) {
  const Place p = place(a.tokens);
  if (!p.inside) return;
  const int d = static_cast<int>(a.head_dim);
  const int64_t hidden = a.heads * a.head_dim;
  const T* qkv = static_cast<const T*>(a.qkv) + p.head * a.head_dim;
  const Range keys = sequence_of(a.cu_seqlens, static_cast<int>(a.capacity), static_cast<int>(p.row));
  Row q, k, v, sum;
  q.read(qkv + p.row * 3 * hidden, d, p.lane);
  sum.clear();
  float top = -INFINITY, weight = 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    k.read(qkv + (3 * j + 1) * hidden, d, p.lane);
    v.read(qkv + (3 * j + 2) * hidden, d, p.lane);
    const float s = a.scale * q.dot(k);
    if (s > top) {
      const float shrink = expf(top - s);
#pragma unroll
      for (int i = 0; i < kMaxLanes; ++i) sum.x[i] *= shrink;
      weight *= shrink;
      top = s;
    }
    const float e = expf(s - top);
    weight += e;
    sum.add(v, e);
  }
  sum.write(static_cast<T*>(a.out) + p.row * hidden + p.head * a.head_dim, d, p.lane, 1.0f / weight);
  if (p.lane == 0) a.lse[p.head * a.tokens + p.row] = top + logf(weight);
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_delta_kernel(AttentionSimpleBackwardArgs a) {
  const Place p = place(a.tokens);
  if (!p.inside) return;
  const int d = static_cast<int>(a.head_dim);
  const int64_t at = (p.row * a.heads + p.head) * a.head_dim;
  Row out, dout;
  out.read(static_cast<const T*>(a.out) + at, d, p.lane);
  dout.read(static_cast<const T*>(a.dout) + at, d, p.lane);
  const float delta = out.dot(dout);
  if (p.lane == 0) a.delta[p.head * a.tokens + p.row] = delta;
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_dq_kernel(AttentionSimpleBackwardArgs a) {
  const Place p = place(a.tokens);
  if (!p.inside) return;
  const int d = static_cast<int>(a.head_dim);
  const int64_t hidden = a.heads * a.head_dim;
  const T* qkv = static_cast<const T*>(a.qkv) + p.head * a.head_dim;
  const Range keys = sequence_of(a.cu_seqlens, static_cast<int>(a.capacity), static_cast<int>(p.row));
  const float lse = a.lse[p.head * a.tokens + p.row], delta = a.delta[p.head * a.tokens + p.row];
  Row q, k, v, dout, dq;
  q.read(qkv + p.row * 3 * hidden, d, p.lane);
  dout.read(static_cast<const T*>(a.dout) + p.row * hidden + p.head * a.head_dim, d, p.lane);
  dq.clear();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    k.read(qkv + (3 * j + 1) * hidden, d, p.lane);
    v.read(qkv + (3 * j + 2) * hidden, d, p.lane);
    const float weight = expf(a.scale * q.dot(k) - lse);
    dq.add(k, weight * (dout.dot(v) - delta));
  }
  dq.write(static_cast<T*>(a.dqkv) + p.row * 3 * hidden + p.head * a.head_dim, d, p.lane, a.scale);
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) attention_dkv_kernel(AttentionSimpleBackwardArgs a) {
  const Place p = place(a.tokens);
  if (!p.inside) return;
  const int d = static_cast<int>(a.head_dim);
  const int64_t hidden = a.heads * a.head_dim;
  const T* qkv = static_cast<const T*>(a.qkv) + p.head * a.head_dim;
  const T* douts = static_cast<const T*>(a.dout) + p.head * a.head_dim;
  const Range queries = sequence_of(a.cu_seqlens, static_cast<int>(a.capacity), static_cast<int>(p.row));
  Row q, k, v, dout, dk, dv;
  k.read(qkv + (3 * p.row + 1) * hidden, d, p.lane);
  v.read(qkv + (3 * p.row + 2) * hidden, d, p.lane);
  dk.clear();
  dv.clear();
  for (int64_t i = queries.begin; i < queries.end; ++i) {
    q.read(qkv + 3 * i * hidden, d, p.lane);
    dout.read(douts + i * hidden, d, p.lane);
    const float weight = expf(a.scale * q.dot(k) - a.lse[p.head * a.tokens + i]);
    dv.add(dout, weight);
    dk.add(q, weight * (dout.dot(v) - a.delta[p.head * a.tokens + i]));
  }
  T* grads = static_cast<T*>(a.dqkv) + p.head * a.head_dim;
  dk.write(grads + (3 * p.row + 1) * hidden, d, p.lane, a.scale);
  dv.write(grads + (3 * p.row + 2) * hidden, d, p.lane, 1.0f);
}

template <class Args>
bool valid(const Args& a) {
  return (a.dtype == DType::kF32 || a.dtype == DType::kBF16) && a.heads > 0 && a.heads < 65536 && a.head_dim > 0 &&
         a.head_dim <= 32 * kMaxLanes && a.capacity > 0;
}

template <class Args>
dim3 grid(const Args& a) {
  return {static_cast<unsigned>((a.tokens + kWarps - 1) / kWarps), static_cast<unsigned>(a.heads)};
}

template <class T>
cudaError_t backward(const AttentionSimpleBackwardArgs& args, cudaStream_t stream) {
  attention_delta_kernel<T><<<grid(args), 32 * kWarps, 0, stream>>>(args);
  attention_dq_kernel<T><<<grid(args), 32 * kWarps, 0, stream>>>(args);
  attention_dkv_kernel<T><<<grid(args), 32 * kWarps, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const AttentionSimpleArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (!valid(args)) return cudaErrorInvalidValue;
  if (args.dtype == DType::kF32)
    attention_kernel<float><<<grid(args), 32 * kWarps, 0, stream>>>(args);
  else
    attention_kernel<__nv_bfloat16><<<grid(args), 32 * kWarps, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch(const AttentionSimpleBackwardArgs& args, cudaStream_t stream) {
  if (args.tokens <= 0) return cudaSuccess;
  if (!valid(args)) return cudaErrorInvalidValue;
  return args.dtype == DType::kF32 ? backward<float>(args, stream) : backward<__nv_bfloat16>(args, stream);
}

}  // namespace esm::kernels
