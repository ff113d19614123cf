// Times of the matrix products of a training step on the current device.
#pragma once
#include <vector>

#include "bench/model_shape.h"

namespace esm::bench {

struct GemmTime {
  NamedGemm gemm;
  double first_us = 0;   // cuBLASLt's first proposal, median, caches flushed before every run
  double chosen_us = 0;  // the proposal that timing chose, as in a run
  int candidates = 0;    // proposals that were timed
  int chosen = 0;        // index of the chosen one; 0 is the first
  double first_tflops() const { return gemm.desc.flops() / first_us * 1e-6; }
  double chosen_tflops() const { return gemm.desc.flops() / chosen_us * 1e-6; }
};

/// model_gemms(shape) on random values; takes tenths of a second a product. DeviceError when there is no device or too
/// little memory.
std::vector<GemmTime> time_gemms(const ModelShape& shape);

}  // namespace esm::bench
