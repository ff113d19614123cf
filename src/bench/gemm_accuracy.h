// How much the sums of FP8 products lose with fast and with split accumulation, where sums are longest: in weight
// gradients, over all tokens of a micro-batch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace esm::bench {

/// Of sums against their true values.
struct SumError {
  double relative_l2 = 0;
  double worst = 0;        // greatest error over the root of the mean square of the true values
  double toward_zero = 0;  // mean error towards zero over the mean magnitude: what rounding off, not rounding, leaves
};
SumError sum_error(const std::vector<double>& got, const std::vector<double>& want);

struct GemmAccuracy {
  std::string inputs;  // "activations x gradients"
  int64_t k = 0;       // tokens
  SumError fast, split;
  double quantization = 0;  // relative L2 error of exact sums over FP8 values against those over the values before
};

/// X^T [hidden, k] in E4M3 times dY^T [4 hidden, k] in E5M2, FP32 result, with the kernels that timing chooses; some
/// thousand elements of the result against FP64. k up to `tokens`. DeviceError without FP8 or memory.
std::vector<GemmAccuracy> measure_gemm_accuracy(int64_t hidden, int64_t tokens);

}  // namespace esm::bench
