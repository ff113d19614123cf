// Numbers that one optimizer step hands from kernel to kernel, in device memory, so that one CUDA graph serves all
// steps and the host waits for none of them; on the CPU the same structs in host memory (ops/update.h). No CUDA here.
#pragma once
#include <cstdint>

namespace esm::kernels {

/// Sums over the scored rows of a step. All FP64 (counts are exact below 2^53), so that ranks add them in one
/// all-reduce.
struct LossSums {
  double loss = 0;
  double scored = 0;
  double correct = 0;
};

struct ClipResult {
  LossSums losses;       // as given
  double grad_norm = 0;  // of the gradient of the mean loss, before clipping
  float grad_scale = 0;  // factor on the gradient of the summed loss: 1 / scored, times the clip factor; 0 when skipped
  int32_t skip = 1;      // nothing scored, or loss or norm not finite
};

/// What AdamW reads.
struct AdamwDynamic {
  int64_t updates = 0;  // done, this one included; part of the state of a run
  double lr = 0;
  double step_lr = 0;        // lr / (1 - beta1^updates)
  float inv_sqrt_bias2 = 1;  // 1 / sqrt(1 - beta2^updates)
  float grad_scale = 0;
  int32_t skip = 1;  // nothing changes
};

/// Place of a value that is not finite: buffer number << kBufferShift | element. The lowest one of several.
inline constexpr int kBufferShift = 40;
inline constexpr uint64_t kAllFinite = ~uint64_t{0};

/// Everything of one step that the host wants to know, in one copy.
struct UpdateNumbers {
  ClipResult clip;
  AdamwDynamic adamw;
  uint64_t first_nonfinite = kAllFinite;  // looked for in skipped steps only
};

}  // namespace esm::kernels
