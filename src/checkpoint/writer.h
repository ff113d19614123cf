// Writes the files of one checkpoint into a folder. What makes the folder a checkpoint is the manifest, written last.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace esm::checkpoint {

/// What to save. The spans must stay unchanged until the writing is over: whoever saves in the background copies first.
struct SaveRequest {
  Manifest manifest;                  // format_version, created, files and tensors are filled in when writing
  std::vector<TensorOut> parameters;  // FP32, or BF16 of a run whose master weights are BF16
  std::vector<TensorOut> exp_avg;     // names and shapes of the first `parameters` (the rest are not trained); or
  std::vector<TensorOut> exp_avg_sq;  // both empty: weights only. FP32, BF16 or E4M3
  std::vector<TensorOut> exp_avg_scale, exp_avg_sq_scale;  // E4M3: FP32, a scale for each 128 elements; else empty
  std::vector<TensorOut> scale_state;                      // of quantized products, in the optimizer's files
  std::vector<TensorOut> passthrough;                      // any type
};

/// A file grows no larger, except for a single larger tensor.
inline constexpr int64_t kMaxFileBytes = int64_t{4} << 30;

/// Bytes on disk that `request` takes (rounded up).
int64_t estimated_bytes(const SaveRequest& request);

/// Writes and syncs every file of `request`, the manifest last, then syncs `folder`, which must exist and be empty.
/// Returns the manifest as it reads. Throws CheckpointError (DiskFullError).
Manifest write_checkpoint(FileSystem& files, const std::string& folder, const SaveRequest& request,
                          int64_t max_file_bytes = kMaxFileBytes);

/// Writes `text` to a new file and syncs it.
void write_text(FileSystem& files, const std::string& path, std::string_view text);

/// Deals `tensors` out to files of at most max_file_bytes, in order: index of the file for each, and the number of
/// files.
struct ShardPlan {
  std::vector<size_t> file_of;
  size_t files = 0;
};
ShardPlan plan_shards(const std::vector<TensorOut>& tensors, int64_t max_file_bytes);

}  // namespace esm::checkpoint
