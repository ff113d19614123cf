#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/narrow.h"
#include "base/units.h"
#include "device/cuda_check.h"
#include "device/memory.h"
#include "kernels/attention_offsets.h"
#include "ops/attention_backends.h"
#include "ops/cudnn_sdpa.h"

namespace esm::ops {
namespace {

class CudnnAttention final : public AttentionBackend {
 public:
  explicit CudnnAttention(const AttentionSizes& sizes)
      : sizes_(sizes), sdpa_(checked(sizes)), index_("attention offsets", 4 * (4 * sizes.capacity + 3)) {
    const int64_t memory = device::device_memory().total_bytes;
    if (workspace_bytes() > memory / 2)
      fail<DeviceError>(
          "attention: cudnn wants a workspace of {} for up to {} sequences of {} tokens, the device has {}{}; use "
          "attention: flash2",
          human_bytes(workspace_bytes()), sizes.capacity, sizes.max_seqlen, human_bytes(memory),
          sizes.deterministic ? " (its deterministic backward grows with the square of data.max_tokens)" : "");
  }

  std::string_view name() const override { return "cudnn"; }
  int64_t workspace_bytes() const override {
    return std::max(sdpa_.forward_workspace_bytes(), sdpa_.backward_workspace_bytes());
  }

  void set_batch(const at::Tensor& cu_seqlens, device::StreamHandle stream) override {
    check_batch(sizes_, cu_seqlens);
    const int64_t hidden = sizes_.heads * sizes_.head_dim;
    int32_t* index = index_.as<int32_t>();
    kernels::AttentionOffsetsArgs args{
        .cu_seqlens = cu_seqlens.const_data_ptr<int32_t>(), .capacity = sizes_.capacity, .lengths = index};
    const int64_t rows[] = {3 * hidden, hidden, sizes_.heads};
    for (int i = 0; i < kernels::AttentionOffsetsArgs::kOffsets; ++i) {
      args.offsets[i] = index + sizes_.capacity + i * (sizes_.capacity + 1);
      args.row_elements[i] = narrow<int32_t>(rows[i]);
    }
    ESM_CUDA(kernels::launch(args, stream));
    sequences_ = {.lengths = args.lengths, .qkv = args.offsets[0], .out = args.offsets[1], .lse = args.offsets[2]};
  }

  void forward(const AttentionForwardCuda& a) override {
    check_forward(sizes_, a, workspace_bytes());
    check_type(a.qkv);
    sdpa_.forward(sequences_,
                  {.qkv = a.qkv.const_data_ptr(),
                   .out = a.out.mutable_data_ptr(),
                   .lse = a.lse.mutable_data_ptr<float>(),
                   .workspace = workspace(a.workspace)},
                  a.stream);
  }

  void backward(const AttentionBackwardCuda& a) override {
    check_backward(sizes_, a, workspace_bytes());
    check_type(a.qkv);
    sdpa_.backward(sequences_,
                   {.qkv = a.qkv.const_data_ptr(),
                    .out = a.out.const_data_ptr(),
                    .dout = a.dout.const_data_ptr(),
                    .lse = a.lse.const_data_ptr<float>(),
                    .dqkv = a.dqkv.mutable_data_ptr(),
                    .workspace = workspace(a.workspace)},
                   a.stream);
  }

 private:
  static const AttentionSizes& checked(const AttentionSizes& sizes) {
    const int64_t elements = sizes.tokens * 3 * sizes.heads * sizes.head_dim;
    if (elements > std::numeric_limits<int32_t>::max())
      fail<DeviceError>("cuDNN attention counts elements in 32 bits: {} tokens of width {} are too many", sizes.tokens,
                        3 * sizes.heads * sizes.head_dim);
    return sizes;
  }
  void check_type(const at::Tensor& qkv) const {
    ESM_CHECK(qkv.scalar_type() == at::kBFloat16, "cuDNN attention is BF16");
    ESM_CHECK(sequences_.lengths != nullptr, "attention before set_batch()");
  }
  static void* workspace(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

  AttentionSizes sizes_;
  CudnnSdpa sdpa_;
  device::DeviceBuffer index_;
  CudnnSequences sequences_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cudnn_attention(const AttentionSizes& sizes) {
  return std::make_unique<CudnnAttention>(sizes);
}

}  // namespace esm::ops
