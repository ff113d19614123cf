// Times of the CUDA kernels of a training step on the current device.
#pragma once
#include <string>
#include <vector>

#include "bench/model_shape.h"

namespace esm::bench {

struct KernelTime {
  std::string name;  // "gelu_backward erf bf16 65536x5120 y sum"
  double us = 0;     // median of one call within a CUDA graph
  double bytes = 0;  // that have to move, as the header of the kernel says
  double gb_per_s() const { return bytes / us * 1e-3; }
};

/// Every elementwise and reduction kernel at the sizes of `shape`: those of an encoder layer, of both ends of the
/// model, and of the optimizer (one encoder layer's parameters, in every format of its state). `filter`: only kernels
/// with this in their name; empty: all. ConfigError for sizes that the kernels do not take, DeviceError when there is
/// no device or too little memory (650M with 65,536 tokens: 7 GiB).
std::vector<KernelTime> time_kernels(const ModelShape& shape, const std::string& filter);

}  // namespace esm::bench
