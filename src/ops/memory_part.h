// One line of a memory table.
#pragma once
#include <cstdint>
#include <string>

#include "ops/aten.h"

namespace esm::ops {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;  // of its tensors
  /// What LibTorch's CUDA allocator adds to them: blocks from 10 MiB on are multiples of 2 MiB, smaller ones of 512
  /// bytes, cut from shared segments.
  int64_t rounding_bytes = 0;

  /// Counts one more block; an undefined tensor is none.
  MemoryPart& add(const at::Tensor& tensor);
};

/// `bytes` of one block, with rounding.
int64_t rounded_block_bytes(int64_t bytes);

}  // namespace esm::ops
