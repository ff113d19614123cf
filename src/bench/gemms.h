// Times of the matrix products of a training step on the current device.
#pragma once
#include <string>
#include <vector>

#include "bench/model_shape.h"

namespace esm::bench {

struct GemmTime {
  NamedGemm gemm;
  std::string lacking;   // why it was not timed: what FP8 or this device cannot do; empty: it was
  double first_us = 0;   // cuBLASLt's first proposal, median, caches flushed before every run
  double chosen_us = 0;  // the proposal that timing chose, as in a run
  int candidates = 0;    // proposals that were timed
  int chosen = 0;        // index of the chosen one; 0 is the first
  double first_tflops() const { return gemm.desc.flops() / first_us * 1e-6; }
  double chosen_tflops() const { return gemm.desc.flops() / chosen_us * 1e-6; }
};

/// On random values; takes up to two seconds a product. DeviceError when there is no device or too little memory.
std::vector<GemmTime> time_gemms(const std::vector<NamedGemm>& gemms);

}  // namespace esm::bench
