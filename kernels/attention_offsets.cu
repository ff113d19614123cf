#include "kernels/attention_offsets.h"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void attention_offsets_kernel(AttentionOffsetsArgs a) {
  const int64_t b = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (b > a.capacity) return;
  const int32_t begin = a.cu_seqlens[b];
  if (b < a.capacity) a.lengths[b] = a.cu_seqlens[b + 1] - begin;
  for (int i = 0; i < AttentionOffsetsArgs::kOffsets; ++i) a.offsets[i][b] = begin * a.row_elements[i];
}

}  // namespace

cudaError_t launch(const AttentionOffsetsArgs& args, cudaStream_t stream) {
  if (args.capacity <= 0) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>((args.capacity + 1 + kThreads - 1) / kThreads);
  attention_offsets_kernel<<<blocks, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace esm::kernels
