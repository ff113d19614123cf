// Packs, buffers and tensors for the attention programs.
#pragma once
#include <string>
#include <vector>

#include "ops/attention_cuda.h"
#include "tests/device/device_array.h"

namespace esm::test {

inline std::vector<int32_t> cumulated(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> cu{0};
  for (const int64_t length : lengths) cu.push_back(cu.back() + static_cast<int32_t>(length));
  return cu;
}

/// Tensor over memory of a DeviceArray, which must outlive it.
inline at::Tensor tensor_of(const DeviceArray& array, at::IntArrayRef shape, at::ScalarType type) {
  return at::from_blob(array.get(), shape, at::TensorOptions().device(at::kCUDA, 0).dtype(type));
}

/// Guarded buffers of one attention problem and the tensors over them.
struct AttentionBuffers {
  AttentionBuffers(const ops::AttentionSizes& sizes, DType dtype, int64_t workspace_bytes)
      : qkv(dtype, 3 * sizes.tokens * sizes.heads * sizes.head_dim),
        out(dtype, sizes.tokens * sizes.heads * sizes.head_dim),
        dout(dtype, sizes.tokens * sizes.heads * sizes.head_dim),
        dqkv(dtype, 3 * sizes.tokens * sizes.heads * sizes.head_dim),
        lse(DType::kF32, sizes.tokens * sizes.heads),
        cu(DType::kI32, sizes.capacity + 1),
        workspace(DType::kU8, workspace_bytes) {
    const auto type = dtype == DType::kF32 ? at::kFloat : at::kBFloat16;
    const std::vector<int64_t> wide{sizes.tokens, 3, sizes.heads, sizes.head_dim},
        narrow{sizes.tokens, sizes.heads, sizes.head_dim};
    forward = {.qkv = tensor_of(qkv, wide, type),
               .out = tensor_of(out, narrow, type),
               .lse = tensor_of(lse, {lse.size()}, at::kFloat),
               .workspace = tensor_of(workspace, {workspace_bytes}, at::kByte)};
    backward = {.qkv = forward.qkv,
                .out = forward.out,
                .dout = tensor_of(dout, narrow, type),
                .lse = forward.lse,
                .dqkv = tensor_of(dqkv, wide, type),
                .workspace = forward.workspace};
    cu_seqlens = tensor_of(cu, {cu.size()}, at::kInt);
  }

  void set_sequences(const std::vector<int32_t>& cumulative, cudaStream_t stream) const {
    std::vector<int32_t> padded = cumulative;
    padded.resize(static_cast<size_t>(cu.size()), cumulative.back());
    cu.upload(padded.data(), stream);
  }

  DeviceArray qkv, out, dout, dqkv, lse, cu, workspace;
  ops::AttentionForwardCuda forward;
  ops::AttentionBackwardCuda backward;
  at::Tensor cu_seqlens;
};

}  // namespace esm::test
