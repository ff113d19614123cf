#include <cmath>

#include "device/cuda_check.h"
#include "kernels/attention_simple.h"
#include "ops/attention_backends.h"
#include "ops/attention_memory.h"

namespace esm::ops {
namespace {

class SimpleAttention final : public AttentionBackend {
 public:
  explicit SimpleAttention(const AttentionSizes& sizes) : sizes_(sizes) {}
  std::string_view name() const override { return "simple"; }
  int64_t workspace_bytes() const override { return attention_memory(AttentionKind::kSimple, sizes_).workspace_bytes; }

  void set_batch(const at::Tensor& cu_seqlens, device::StreamHandle) override {
    check_batch(sizes_, cu_seqlens);
    cu_seqlens_ = cu_seqlens;
  }

  void forward(const AttentionForwardCuda& a) override {
    check_forward(sizes_, a, workspace_bytes());
    ESM_CUDA(kernels::launch(kernels::AttentionSimpleArgs{.dtype = dtype_of(a.qkv),
                                                          .qkv = a.qkv.const_data_ptr(),
                                                          .cu_seqlens = cu_seqlens_.const_data_ptr<int32_t>(),
                                                          .out = a.out.mutable_data_ptr(),
                                                          .lse = a.lse.mutable_data_ptr<float>(),
                                                          .tokens = sizes_.tokens,
                                                          .heads = sizes_.heads,
                                                          .head_dim = sizes_.head_dim,
                                                          .capacity = sizes_.capacity,
                                                          .scale = scale()},
                             a.stream));
  }

  void backward(const AttentionBackwardCuda& a) override {
    check_backward(sizes_, a, workspace_bytes());
    ESM_CUDA(kernels::launch(
        kernels::AttentionSimpleBackwardArgs{.dtype = dtype_of(a.qkv),
                                             .qkv = a.qkv.const_data_ptr(),
                                             .cu_seqlens = cu_seqlens_.const_data_ptr<int32_t>(),
                                             .out = a.out.const_data_ptr(),
                                             .dout = a.dout.const_data_ptr(),
                                             .lse = a.lse.const_data_ptr<float>(),
                                             .dqkv = a.dqkv.mutable_data_ptr(),
                                             .delta = static_cast<float*>(a.workspace.mutable_data_ptr()),
                                             .tokens = sizes_.tokens,
                                             .heads = sizes_.heads,
                                             .head_dim = sizes_.head_dim,
                                             .capacity = sizes_.capacity,
                                             .scale = scale()},
        a.stream));
  }

 private:
  static DType dtype_of(const at::Tensor& x) { return x.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16; }
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(sizes_.head_dim))); }

  AttentionSizes sizes_;
  at::Tensor cu_seqlens_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_simple_attention(const AttentionSizes& sizes) {
  return std::make_unique<SimpleAttention>(sizes);
}

}  // namespace esm::ops
