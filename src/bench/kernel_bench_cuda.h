// What the kernel timings share: the clock, and buffers as large as the largest kernel needs. Private to this folder.
#pragma once
#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/kernels.h"
#include "bench/random_values_cuda.h"
#include "device/cuda_check.h"
#include "device/stream.h"

namespace esm::bench {

class KernelBench {
 public:
  KernelBench(const ModelShape& shape, std::string filter);

  using Body = std::function<cudaError_t(cudaStream_t)>;
  /// Times `body`, one kernel that has to move `bytes`, if the filter lets it pass.
  void add(const std::string& name, double bytes, const Body& body);
  /// New random values in a, b, c and d: kernels that add to what is there make it grow.
  void fill_activations();
  std::vector<KernelTime> take() { return std::move(times_); }

  /// "bf16 65536x1280".
  std::string shape_text(int64_t rows, int64_t cols) const;

  template <class T>
  device::DeviceBuffer upload(const std::vector<T>& host) const {
    device::DeviceBuffer buffer("a kernel timing", static_cast<int64_t>(host.size() * sizeof(T)));
    ESM_CUDA(cudaMemcpy(buffer.get(), host.data(), static_cast<size_t>(buffer.bytes()), cudaMemcpyHostToDevice));
    return buffer;
  }
  /// Bytes set to 0.
  device::DeviceBuffer zeros(int64_t bytes) const;

  const ModelShape shape;
  const double element;  // bytes of an activation
  device::Stream stream;
  RandomValues values;
  device::DeviceBuffer a, b, c, d;  // tokens * max(ffn, 3 hidden) activations each
  device::DeviceBuffer workspace;
  device::DeviceBuffer sum1, sum2, sum3;  // FP32, at least 64 rows of the widest
  device::DeviceBuffer stats1, stats2;    // FP32, random, at least one a token

 private:
  double median_us(const Body& body, int calls) const;

  std::string filter_;
  std::vector<KernelTime> times_;
};

void time_layer_kernels(KernelBench& bench);      // kernels_layer_cuda.cpp
void time_fp8_kernels(KernelBench& bench);        // kernels_fp8_cuda.cpp
void time_end_kernels(KernelBench& bench);        // kernels_ends_cuda.cpp: embedding and head
void time_optimizer_kernels(KernelBench& bench);  // kernels_optimizer_cuda.cpp

}  // namespace esm::bench
