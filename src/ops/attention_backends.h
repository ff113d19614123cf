// The backends of attention_cuda.h and the checks they share.
#pragma once
#include "ops/attention_cuda.h"

namespace esm::ops {

std::unique_ptr<AttentionBackend> make_flash2_attention(const AttentionSizes& sizes);
std::unique_ptr<AttentionBackend> make_cudnn_attention(const AttentionSizes& sizes);
std::unique_ptr<AttentionBackend> make_simple_attention(const AttentionSizes& sizes);

/// Shapes, types, contiguity, alignment and workspace of a call.
void check_forward(const AttentionSizes& sizes, const AttentionForwardCuda& a, int64_t workspace_bytes);
void check_backward(const AttentionSizes& sizes, const AttentionBackwardCuda& a, int64_t workspace_bytes);
void check_batch(const AttentionSizes& sizes, const at::Tensor& cu_seqlens);

}  // namespace esm::ops
