// Device memory of the attention backends beside the tensors of a layer, predicted without a device.
#pragma once
#include <cstdint>

#include "ops/attention_cuda.h"

namespace esm::ops {

struct AttentionMemory {
  int64_t workspace_bytes = 0;  // AttentionBackend::workspace_bytes()
  int64_t library_bytes = 0;    // what LibTorch's allocator keeps for tensors made within the calls
};

/// Of forward and backward. kSimple: exact. kFlash2: the tensors that LibTorch 2.11's flash_api.cpp makes in backward.
/// kCudnn: fitted to what cuDNN 9.19 asks for on sm_90 (head dimensions 16, 24, 32, 64; a test on the device compares).
AttentionMemory attention_memory(AttentionKind kind, const AttentionSizes& sizes);

/// `kind`; or simple, when room for so many sequences would take more than twice what `usual` sequences take, and more
/// than 1 GiB: packs of thousands of short peptides, whose attention is little work for any kernel.
AttentionKind attention_within_memory(AttentionKind kind, const AttentionSizes& sizes, int64_t usual);

/// What choose_attention() is bound to take where it has no choice, and took wherever it was tried where it has one:
/// cudnn, else flash2, else simple.
AttentionKind likely_attention(const AttentionSizes& sizes, at::ScalarType type, int capability);

}  // namespace esm::ops
