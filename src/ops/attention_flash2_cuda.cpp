#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

#include "base/check.h"
#include "ops/attention_backends.h"

namespace esm::ops {
namespace {

/// LibTorch's deterministic switch is global: on for one call only.
class DeterministicScope {
 public:
  explicit DeterministicScope(bool wanted) : context_(at::globalContext()) {
    before_ = context_.deterministicAlgorithms();
    warn_only_ = context_.deterministicAlgorithmsWarnOnly();
    fill_ = context_.deterministicFillUninitializedMemory();
    context_.setDeterministicAlgorithms(wanted, false);
    context_.setDeterministicFillUninitializedMemory(false);  // would clear every new tensor
  }
  ~DeterministicScope() {
    context_.setDeterministicAlgorithms(before_, warn_only_);
    context_.setDeterministicFillUninitializedMemory(fill_);
  }
  DeterministicScope(const DeterministicScope&) = delete;
  DeterministicScope& operator=(const DeterministicScope&) = delete;

 private:
  at::Context& context_;
  bool before_, warn_only_, fill_;
};

/// LibTorch returns new tensors; out and lse (2 K + 4 bytes a token and head) and dq, dk, dv (6 K) are copied to where
/// they belong.
class Flash2Attention final : public AttentionBackend {
 public:
  explicit Flash2Attention(const AttentionSizes& sizes) : sizes_(sizes) {}
  std::string_view name() const override { return "flash2"; }
  int64_t workspace_bytes() const override { return 0; }

  void set_batch(const at::Tensor& cu_seqlens, device::StreamHandle) override {
    check_batch(sizes_, cu_seqlens);
    cu_seqlens_ = cu_seqlens;
  }

  void forward(const AttentionForwardCuda& a) override {
    check_forward(sizes_, a, 0);
    check_type(a.qkv);
    const c10::cuda::CUDAStreamGuard guard(stream_of(a.qkv, a.stream));
    const auto [out, lse, rng_state, unused, debug_mask] =
        at::_flash_attention_forward(a.qkv.select(1, 0), a.qkv.select(1, 1), a.qkv.select(1, 2), cu_seqlens_,
                                     cu_seqlens_, sizes_.max_seqlen, sizes_.max_seqlen, /*dropout_p=*/0.0,
                                     /*is_causal=*/false, /*return_debug_mask=*/false);
    ESM_CHECK(lse.dim() == 2 && lse.size(0) == sizes_.heads && lse.size(1) == sizes_.tokens,
              "LibTorch's flash attention returned statistics of another shape");
    a.out.copy_(out);
    a.lse.view({sizes_.heads, sizes_.tokens}).copy_(lse);
    rng_state_ = rng_state;  // without dropout never read, but backward wants a tensor
    unused_ = unused;
  }

  void backward(const AttentionBackwardCuda& a) override {
    check_backward(sizes_, a, 0);
    check_type(a.qkv);
    ESM_CHECK(rng_state_.defined(), "attention's backward before any forward");
    const c10::cuda::CUDAStreamGuard guard(stream_of(a.qkv, a.stream));
    const DeterministicScope deterministic(sizes_.deterministic);
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        a.dout, a.qkv.select(1, 0), a.qkv.select(1, 1), a.qkv.select(1, 2), a.out,
        a.lse.view({sizes_.heads, sizes_.tokens}), cu_seqlens_, cu_seqlens_, sizes_.max_seqlen, sizes_.max_seqlen,
        /*dropout_p=*/0.0, /*is_causal=*/false, rng_state_, unused_);
    a.dqkv.select(1, 0).copy_(dq);
    a.dqkv.select(1, 1).copy_(dk);
    a.dqkv.select(1, 2).copy_(dv);
  }

 private:
  static c10::cuda::CUDAStream stream_of(const at::Tensor& x, device::StreamHandle stream) {
    if (stream == nullptr) return c10::cuda::getDefaultCUDAStream(x.get_device());
    return c10::cuda::getStreamFromExternal(stream, x.get_device());
  }
  void check_type(const at::Tensor& qkv) const {
    ESM_CHECK(qkv.scalar_type() == at::kBFloat16, "flash attention is BF16");
    ESM_CHECK(cu_seqlens_.defined(), "attention before set_batch()");
  }

  AttentionSizes sizes_;
  at::Tensor cu_seqlens_, rng_state_, unused_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_flash2_attention(const AttentionSizes& sizes) {
  return std::make_unique<Flash2Attention>(sizes);
}

}  // namespace esm::ops
