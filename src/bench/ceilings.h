// What the current device can do at best, measured: the rates that everything else is compared with.
#pragma once
#include <algorithm>
#include <cstdint>

namespace esm::bench {

/// Copies inside device memory, in GB/s with bytes read and bytes written both counted.
struct CopyRates {
  int64_t bytes = 0;            // of one buffer; the two are far larger than any cache
  double library = 0;           // cudaMemcpyAsync on a stream
  double library_in_graph = 0;  // the same as a node of a CUDA graph
  double kernel = 0;            // kernels/copy.h
  double best() const { return std::max({library, library_in_graph, kernel}); }
};
/// Takes up to 8 GiB of device memory, half of it a buffer, less where less is free. DeviceError without CUDA.
CopyRates measure_copy();

struct GemmCeiling {
  static constexpr int64_t kSize = 8192;  // m = n = k
  double tflops = 0;  // BF16 operands of random values, FP32 sums, the fastest of cuBLASLt's proposals
};
GemmCeiling measure_gemm();

/// The same with E4M3 operands, one scale a tensor, and a BF16 result.
struct Fp8GemmCeiling {
  double fast_tflops = 0;   // sums kept in the tensor cores
  double split_tflops = 0;  // sums added up in FP32
};
/// DeviceError when the device has no FP8 tensor cores.
Fp8GemmCeiling measure_fp8_gemm();

}  // namespace esm::bench
