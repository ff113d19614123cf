// Text file of attention choices, so that a second start needs no timing. One line a choice, fields apart by tabs:
//   attention=cudnn  us=1112.4  device=NVIDIA H200  cudnn=9.19.0  libtorch=2.11.0+cu130  tokens=65536  heads=20 ...
// A damaged line is dropped, so a damaged file costs a new timing and no run.
#pragma once
#include <optional>
#include <string>

#include "ops/attention_cuda.h"

namespace esm::ops {

/// What a choice is valid for: device, libraries and sizes, on one line.
std::string attention_choice_key(const std::string& device, const AttentionSizes& sizes);

struct KeptAttention {
  AttentionKind kind = AttentionKind::kFlash2;
  double microseconds = 0;
};

/// None when there is no such choice in the file, or no file. Throws DataError when the file exists and cannot be read.
std::optional<KeptAttention> read_attention_choice(const std::string& path, const std::string& key);

/// Adds the choice to the file, in place of that of an equal key; atomic. Throws DataError.
void write_attention_choice(const std::string& path, const std::string& key, const KeptAttention& choice);

}  // namespace esm::ops
