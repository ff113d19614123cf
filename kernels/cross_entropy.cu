#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kCols = CrossEntropyArgs::kCols;
constexpr int kLanes = kCols / 8;                // of a row
constexpr int kRowsPerPass = kThreads / kLanes;  // of a block
constexpr int kMaxBlocks = kMultiprocessors;

struct BlockSums {
  double loss, correct;
  float dbias[kCols];
};

int blocks_of(int64_t capacity) {
  return static_cast<int>(std::min<int64_t>(kMaxBlocks, ceil_div(capacity, kRowsPerPass)));
}

struct Best {
  float value;
  int index;
};
__device__ Best better(const Best& a, const Best& b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

template <class L, class D>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(CrossEntropyArgs a) {
  __shared__ double losses[kRowsPerPass];
  __shared__ int corrects[kRowsPerPass];
  __shared__ float column_sums[kRowsPerPass][kCols];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, first = lane * 8;
  const int64_t scored = min(static_cast<int64_t>(*a.n_scored), a.capacity);
  const float infinity = __int_as_float(0x7f800000);
  const float share = a.label_smoothing / static_cast<float>(a.classes);

  float bias[8] = {};
  if (a.bias != nullptr)
    for (int k = 0; k < 8; ++k) bias[k] = first + k < a.classes ? a.bias[first + k] : 0.0f;

  double loss_sum = 0;
  int correct = 0;
  float dsums[8] = {};
  // All threads of a block take every pass: they trade values.
  for (int64_t pass = blockIdx.x; pass * kRowsPerPass < a.capacity; pass += gridDim.x) {
    const int64_t row = pass * kRowsPerPass + group;
    const bool counts = row < scored;
    float e[8] = {};
    if (counts) unpack(load8(static_cast<const L*>(a.logits) + row * kCols + first), e);
    const int target = counts ? a.targets[row] : 0;

    Best best{-infinity, kCols};
    float total = 0, at_target = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const bool valid = first + k < a.classes;
      e[k] = valid ? e[k] + bias[k] : -infinity;
      if (valid) total += e[k];
      if (first + k == target) at_target = e[k];
      best = better(best, {e[k], first + k});
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
      best = better(
          best, {__shfl_xor_sync(0xffffffffu, best.value, offset), __shfl_xor_sync(0xffffffffu, best.index, offset)});
    float exps[8], sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      exps[k] = first + k < a.classes ? expf(e[k] - best.value) : 0.0f;
      sum += exps[k];
    }
    sum = lanes_sum<kLanes>(sum);
    total = lanes_sum<kLanes>(total);
    at_target = lanes_sum<kLanes>(at_target);

    if (counts && lane == 0) {
      const float log_sum = logf(sum);
      const float classes = static_cast<float>(a.classes);
      // Relative to the highest logit, so that large logits of either sign do not cancel.
      loss_sum += (1.0f - a.label_smoothing) * (log_sum - (at_target - best.value)) +
                  share * (classes * log_sum - (total - classes * best.value));
      correct += best.index == target ? 1 : 0;
    }
    if (a.dlogits != nullptr && row < a.capacity) {
      const float inverse = 1.0f / sum;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float d = exps[k] * inverse - share - (first + k == target ? 1.0f - a.label_smoothing : 0.0f);
        e[k] = counts && first + k < a.classes ? d : 0.0f;
        dsums[k] += e[k];
      }
      store8(static_cast<D*>(a.dlogits) + row * kCols + first, e);
    }
  }

  if (lane == 0) {
    losses[group] = loss_sum;
    corrects[group] = correct;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) column_sums[group][first + k] = dsums[k];
  __syncthreads();
  BlockSums* out = static_cast<BlockSums*>(a.workspace) + blockIdx.x;
  if (threadIdx.x < kCols) {
    float sum = 0;
    for (int g = 0; g < kRowsPerPass; ++g) sum += column_sums[g][threadIdx.x];
    out->dbias[threadIdx.x] = sum;
  } else if (threadIdx.x == kCols) {
    double loss = 0, count = 0;
    for (int g = 0; g < kRowsPerPass; ++g) {
      loss += losses[g];
      count += corrects[g];
    }
    out->loss = loss;
    out->correct = count;
  }
}

__global__ void __launch_bounds__(2 * kCols) cross_entropy_finish_kernel(CrossEntropyArgs a, int blocks) {
  const BlockSums* parts = static_cast<const BlockSums*>(a.workspace);
  if (threadIdx.x < a.classes && a.dbias != nullptr) {
    float sum = 0;
#pragma unroll 8
    for (int b = 0; b < blocks; ++b) sum += parts[b].dbias[threadIdx.x];
    a.dbias[threadIdx.x] += sum;
  } else if (threadIdx.x == kCols) {
    double loss = 0, correct = 0;
#pragma unroll 8
    for (int b = 0; b < blocks; ++b) {
      loss += parts[b].loss;
      correct += parts[b].correct;
    }
    a.sums->loss += loss;
    a.sums->correct += correct;
    a.sums->scored += static_cast<double>(min(static_cast<int64_t>(*a.n_scored), a.capacity));
  }
}

}  // namespace

size_t cross_entropy_workspace() { return kMaxBlocks * sizeof(BlockSums); }

cudaError_t launch(const CrossEntropyArgs& args, cudaStream_t stream) {
  if (args.capacity <= 0) return cudaSuccess;
  if (args.classes < 1 || args.classes > kCols || !aligned16(args.logits) || !aligned16(args.dlogits) ||
      !aligned16(args.workspace) || (args.dbias != nullptr && args.dlogits == nullptr) ||
      (args.dlogits == args.logits && args.dlogits_dtype != args.logits_dtype))
    return cudaErrorInvalidValue;
  const int blocks = blocks_of(args.capacity);
  const cudaError_t error = with_activation(args.logits_dtype, [&](auto logits) {
    return with_activation(args.dlogits_dtype, [&](auto dlogits) {
      return start(cross_entropy_kernel<typename decltype(logits)::type, typename decltype(dlogits)::type>,
                   dim3(blocks), dim3(kThreads), 0, stream, args);
    });
  });
  if (error != cudaSuccess) return error;
  return start(cross_entropy_finish_kernel, dim3(1), dim3(2 * kCols), 0, stream, args, blocks);
}

}  // namespace esm::kernels
