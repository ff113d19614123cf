#include "ops/attention_cuda.h"

#include "base/check.h"
#include "device/cuda_check.h"
#include "device/properties.h"
#include "ops/attention_backends.h"

namespace esm::ops {
namespace {

void check_rows(const at::Tensor& x, at::IntArrayRef shape, at::ScalarType type) {
  ESM_CHECK(x.is_cuda() && x.is_contiguous() && x.sizes() == shape && x.scalar_type() == type,
            "attention on a tensor of wrong place, shape or type");
  ESM_CHECK(reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0, "attention on a misaligned tensor");
}

void check_lse_and_workspace(const AttentionSizes& sizes, const at::Tensor& lse, const at::Tensor& workspace,
                             int64_t workspace_bytes) {
  ESM_CHECK(lse.is_cuda() && lse.is_contiguous() && lse.scalar_type() == at::kFloat &&
                lse.numel() == sizes.tokens * sizes.heads,
            "attention statistics");
  if (workspace_bytes == 0) return;
  ESM_CHECK(
      workspace.is_cuda() && workspace.is_contiguous() && static_cast<int64_t>(workspace.nbytes()) >= workspace_bytes,
      "attention needs a workspace of {} bytes", workspace_bytes);
}

}  // namespace

std::unique_ptr<AttentionBackend> make_attention_backend(AttentionKind kind, const AttentionSizes& sizes) {
  ESM_CHECK(sizes.tokens > 0 && sizes.heads > 0 && sizes.capacity > 0 && sizes.max_seqlen > 0, "attention sizes");
  int device = 0;
  ESM_CUDA(cudaGetDevice(&device));
  const std::string refusal = attention_refusal(
      kind, {.head_dim = sizes.head_dim, .capability = device::properties(device).compute_capability});
  if (!refusal.empty()) fail<DeviceError>("attention backend '{}' {}", attention_kind_name(kind), refusal);
  switch (kind) {
    case AttentionKind::kFlash2: return make_flash2_attention(sizes);
    case AttentionKind::kCudnn: return make_cudnn_attention(sizes);
    case AttentionKind::kSimple: return make_simple_attention(sizes);
  }
  fail<InternalError>("no such attention backend");
}

void check_forward(const AttentionSizes& sizes, const AttentionForwardCuda& a, int64_t workspace_bytes) {
  check_rows(a.qkv, {sizes.tokens, 3, sizes.heads, sizes.head_dim}, a.qkv.scalar_type());
  check_rows(a.out, {sizes.tokens, sizes.heads, sizes.head_dim}, a.qkv.scalar_type());
  check_lse_and_workspace(sizes, a.lse, a.workspace, workspace_bytes);
}

void check_backward(const AttentionSizes& sizes, const AttentionBackwardCuda& a, int64_t workspace_bytes) {
  const auto type = a.qkv.scalar_type();
  check_rows(a.qkv, {sizes.tokens, 3, sizes.heads, sizes.head_dim}, type);
  check_rows(a.dqkv, {sizes.tokens, 3, sizes.heads, sizes.head_dim}, type);
  check_rows(a.out, {sizes.tokens, sizes.heads, sizes.head_dim}, type);
  check_rows(a.dout, {sizes.tokens, sizes.heads, sizes.head_dim}, type);
  check_lse_and_workspace(sizes, a.lse, a.workspace, workspace_bytes);
}

void check_batch(const AttentionSizes& sizes, const at::Tensor& cu_seqlens) {
  ESM_CHECK(cu_seqlens.is_cuda() && cu_seqlens.is_contiguous() && cu_seqlens.scalar_type() == at::kInt &&
                cu_seqlens.numel() == sizes.capacity + 1,
            "cu_seqlens of a pack of at most {} sequences", sizes.capacity);
}

}  // namespace esm::ops
