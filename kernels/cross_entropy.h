// Masked-language loss of scored rows and its gradient; CPU twin: ops/cross_entropy.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/update.h"

namespace esm::kernels {

/// logits [capacity, 64], of which the first `classes` columns count (others are padding of the GEMM and may hold
/// anything). Per row i < *n_scored with p = softmax(logits + bias), smoothing e:
///   loss = -(1 - e) log p[target] - e/V sum over v of log p[v]
/// sums += {losses, *n_scored, rows whose highest logit (lowest id of equals) is the target};
/// dlogits = gradient of the sum of losses, 0 in columns from `classes` and in rows from *n_scored;
/// dbias[v] += column sums of dlogits before rounding. FP32 per row, FP64 over rows in an order that depends on
/// capacity only. Bytes moved: capacity * 64 * (E of logits + E of dlogits).
struct CrossEntropyArgs {
  static constexpr int kCols = 64;
  DType logits_dtype = DType::kF32;
  DType dlogits_dtype = DType::kBF16;
  int64_t capacity = 0;
  int classes = 33;
  const void* logits = nullptr;       // 16-byte aligned
  const float* bias = nullptr;        // [classes]; null: already added
  const uint8_t* targets = nullptr;   // [capacity]; read below *n_scored only
  const int32_t* n_scored = nullptr;  // [1], at most capacity
  float label_smoothing = 0;
  LossSums* sums = nullptr;   // added to
  void* dlogits = nullptr;    // [capacity, 64]; null: not wanted; may be logits if the types are equal
  float* dbias = nullptr;     // [classes], added to; null: not wanted
  void* workspace = nullptr;  // cross_entropy_workspace() bytes
};
size_t cross_entropy_workspace();
cudaError_t launch(const CrossEntropyArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
