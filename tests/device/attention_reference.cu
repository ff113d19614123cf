#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/memory.h"
#include "tests/device/attention_reference.h"

namespace esm::test {
namespace {

constexpr int kThreads = 128;

struct Problem {
  const void* qkv;
  const void* dout;
  const int32_t* first;  // [T] first and last + 1 row of each row's sequence
  const int32_t* end;
  int heads, head_dim;
  double scale;
  double *out, *out_magnitude, *lse, *delta, *delta_magnitude, *dqkv, *dqkv_magnitude;
};

template <class T>
__device__ double value(const void* data, int64_t at) {
  return static_cast<double>(static_cast<float>(static_cast<const T*>(data)[at]));
}

__device__ double block_reduce(double x, bool maximum) {
  __shared__ double parts[kThreads];
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      const double other = parts[threadIdx.x + step];
      parts[threadIdx.x] = maximum ? fmax(parts[threadIdx.x], other) : parts[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const double result = parts[0];
  __syncthreads();
  return result;
}

struct Index {
  int64_t hidden;
  int head, head_dim;
  __device__ int64_t qkv(int64_t row, int part, int c) const {
    return (3 * row + part) * hidden + static_cast<int64_t>(head) * head_dim + c;
  }
  __device__ int64_t out(int64_t row, int c) const { return row * hidden + static_cast<int64_t>(head) * head_dim + c; }
};

__device__ Index index_of(const Problem& p) {
  return {static_cast<int64_t>(p.heads) * p.head_dim, static_cast<int>(blockIdx.y), p.head_dim};
}

template <class T>
__device__ double dot(const void* x, int64_t x_at, const void* y, int64_t y_at, int n) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += value<T>(x, x_at + c) * value<T>(y, y_at + c);
  return sum;
}

template <class T>
__global__ void forward_kernel(Problem p) {
  extern __shared__ double weight[];
  const Index at = index_of(p);
  const int row = static_cast<int>(blockIdx.x), first = p.first[row], n = p.end[row] - first;
  double top = -INFINITY;
  for (int j = threadIdx.x; j < n; j += kThreads) {
    weight[j] = p.scale * dot<T>(p.qkv, at.qkv(row, 0, 0), p.qkv, at.qkv(first + j, 1, 0), p.head_dim);
    top = fmax(top, weight[j]);
  }
  top = block_reduce(top, true);
  double sum = 0;
  for (int j = threadIdx.x; j < n; j += kThreads) {
    weight[j] = exp(weight[j] - top);
    sum += weight[j];
  }
  sum = block_reduce(sum, false);
  double delta = 0, delta_magnitude = 0;
  for (int c = threadIdx.x; c < p.head_dim; c += kThreads) {
    double out = 0, magnitude = 0;
    for (int j = 0; j < n; ++j) {
      const double term = weight[j] / sum * value<T>(p.qkv, at.qkv(first + j, 2, c));
      out += term;
      magnitude += fabs(term);
    }
    p.out[at.out(row, c)] = out;
    p.out_magnitude[at.out(row, c)] = magnitude;
    const double dout = value<T>(p.dout, at.out(row, c));
    delta += out * dout;
    delta_magnitude += magnitude * fabs(dout);
  }
  delta = block_reduce(delta, false);
  delta_magnitude = block_reduce(delta_magnitude, false);
  if (threadIdx.x == 0) {
    const int64_t stat = static_cast<int64_t>(row) * p.heads + at.head;
    p.lse[stat] = top + log(sum);
    p.delta[stat] = delta;
    p.delta_magnitude[stat] = delta_magnitude;
  }
}

struct Weights {
  double p, ds, ds_magnitude;
};

/// Query row i against key row j.
template <class T>
__device__ Weights weights(const Problem& p, const Index& at, int i, int j) {
  const int64_t stat = static_cast<int64_t>(i) * p.heads + at.head;
  const double s = p.scale * dot<T>(p.qkv, at.qkv(i, 0, 0), p.qkv, at.qkv(j, 1, 0), p.head_dim);
  const double w = exp(s - p.lse[stat]);
  const double dp = dot<T>(p.dout, at.out(i, 0), p.qkv, at.qkv(j, 2, 0), p.head_dim);
  return {w, w * (dp - p.delta[stat]), w * (fabs(dp) + p.delta_magnitude[stat])};
}

template <class T>
__global__ void dq_kernel(Problem p) {
  extern __shared__ double shared[];
  const Index at = index_of(p);
  const int row = static_cast<int>(blockIdx.x), first = p.first[row], n = p.end[row] - first;
  double *ds = shared, *magnitudes = shared + n;
  for (int j = threadIdx.x; j < n; j += kThreads) {
    const Weights w = weights<T>(p, at, row, first + j);
    ds[j] = w.ds;
    magnitudes[j] = w.ds_magnitude;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < p.head_dim; c += kThreads) {
    double dq = 0, magnitude = 0;
    for (int j = 0; j < n; ++j) {
      const double k = value<T>(p.qkv, at.qkv(first + j, 1, c));
      dq += ds[j] * k;
      magnitude += magnitudes[j] * fabs(k);
    }
    p.dqkv[at.qkv(row, 0, c)] = p.scale * dq;
    p.dqkv_magnitude[at.qkv(row, 0, c)] = p.scale * magnitude;
  }
}

template <class T>
__global__ void dkv_kernel(Problem p) {
  extern __shared__ double shared[];
  const Index at = index_of(p);
  const int row = static_cast<int>(blockIdx.x), first = p.first[row], n = p.end[row] - first;
  double *weight = shared, *ds = shared + n, *magnitudes = shared + 2 * n;
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const Weights w = weights<T>(p, at, first + i, row);
    weight[i] = w.p;
    ds[i] = w.ds;
    magnitudes[i] = w.ds_magnitude;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < p.head_dim; c += kThreads) {
    double dk = 0, dk_magnitude = 0, dv = 0, dv_magnitude = 0;
    for (int i = 0; i < n; ++i) {
      const double q = value<T>(p.qkv, at.qkv(first + i, 0, c)), dout = value<T>(p.dout, at.out(first + i, c));
      dk += ds[i] * q;
      dk_magnitude += magnitudes[i] * fabs(q);
      dv += weight[i] * dout;
      dv_magnitude += weight[i] * fabs(dout);
    }
    p.dqkv[at.qkv(row, 1, c)] = p.scale * dk;
    p.dqkv_magnitude[at.qkv(row, 1, c)] = p.scale * dk_magnitude;
    p.dqkv[at.qkv(row, 2, c)] = dv;
    p.dqkv_magnitude[at.qkv(row, 2, c)] = dv_magnitude;
  }
}

template <class T>
void run(const Problem& p, int64_t tokens, int64_t longest) {
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(p.heads));
  const auto bytes = [longest](int arrays) { return static_cast<size_t>(arrays * longest * 8); };
  const auto allow = [&](auto* kernel, int arrays) {
    ESM_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes(arrays))));
  };
  allow(forward_kernel<T>, 1);
  allow(dq_kernel<T>, 2);
  allow(dkv_kernel<T>, 3);
  forward_kernel<T><<<grid, kThreads, bytes(1)>>>(p);
  dq_kernel<T><<<grid, kThreads, bytes(2)>>>(p);
  dkv_kernel<T><<<grid, kThreads, bytes(3)>>>(p);
  ESM_CUDA(cudaGetLastError());
  ESM_CUDA(cudaDeviceSynchronize());
}

std::vector<double> download(const device::DeviceBuffer& buffer) {
  std::vector<double> host(static_cast<size_t>(buffer.bytes() / 8));
  ESM_CUDA(cudaMemcpy(host.data(), buffer.get(), static_cast<size_t>(buffer.bytes()), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace

AttentionReference attention_reference(const AttentionReferenceArgs& args) {
  const int64_t tokens = args.cu_seqlens.back(), hidden = args.heads * args.head_dim;
  std::vector<int32_t> rows(static_cast<size_t>(2 * tokens));
  int64_t longest = 0;
  for (size_t s = 0; s + 1 < args.cu_seqlens.size(); ++s) {
    const int32_t first = args.cu_seqlens[s], end = args.cu_seqlens[s + 1];
    longest = std::max<int64_t>(longest, end - first);
    for (int32_t row = first; row < end; ++row) {
      rows[static_cast<size_t>(row)] = first;
      rows[static_cast<size_t>(tokens + row)] = end;
    }
  }
  if (longest > 9000) throw InternalError("the reference holds a row of scores in shared memory");
  const char* purpose = "the attention reference";
  const device::DeviceBuffer ranges(purpose, 8 * tokens), out(purpose, 8 * tokens * hidden),
      out_magnitude(purpose, 8 * tokens * hidden), lse(purpose, 8 * tokens * args.heads),
      delta(purpose, 8 * tokens * args.heads), delta_magnitude(purpose, 8 * tokens * args.heads),
      dqkv(purpose, 24 * tokens * hidden), dqkv_magnitude(purpose, 24 * tokens * hidden);
  ESM_CUDA(cudaMemcpy(ranges.get(), rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  const Problem p{.qkv = args.qkv,
                  .dout = args.dout,
                  .first = ranges.as<int32_t>(),
                  .end = ranges.as<int32_t>() + tokens,
                  .heads = static_cast<int>(args.heads),
                  .head_dim = static_cast<int>(args.head_dim),
                  .scale = 1.0 / std::sqrt(static_cast<double>(args.head_dim)),
                  .out = out.as<double>(),
                  .out_magnitude = out_magnitude.as<double>(),
                  .lse = lse.as<double>(),
                  .delta = delta.as<double>(),
                  .delta_magnitude = delta_magnitude.as<double>(),
                  .dqkv = dqkv.as<double>(),
                  .dqkv_magnitude = dqkv_magnitude.as<double>()};
  if (args.dtype == DType::kF32)
    run<float>(p, tokens, longest);
  else
    run<__nv_bfloat16>(p, tokens, longest);
  return {.out = download(out),
          .out_magnitude = download(out_magnitude),
          .lse = download(lse),
          .dqkv = download(dqkv),
          .dqkv_magnitude = download(dqkv_magnitude)};
}

}  // namespace esm::test
