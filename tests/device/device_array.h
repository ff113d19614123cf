// Guarded device arrays and random values for the programs of this folder.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/cuda_check.h"
#include "device/memory.h"

namespace esm::test {

/// `n` elements with poisoned bytes (0xff: NaN in FP32 and BF16) in and behind them.
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(DType dtype, int64_t n);

  void* get() const { return buffer_.get(); }
  template <class T>
  T* as() const {
    return buffer_.as<T>();
  }
  int64_t size() const { return n_; }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return n_ * size_of(dtype_); }

  void poison(cudaStream_t stream) const;
  /// Normal values times `scale`; equal for equal (n, seed) on every device.
  void fill_normal(uint64_t seed, float scale, cudaStream_t stream) const;
  void upload(const void* host, cudaStream_t stream) const;
  std::vector<std::byte> download(cudaStream_t stream) const;
  /// As FP64, from FP32 or BF16.
  std::vector<double> values(cudaStream_t stream) const;
  /// False when something was written behind the end.
  bool guard_intact(cudaStream_t stream) const;

 private:
  static constexpr int64_t kGuardBytes = 4096;
  DType dtype_ = DType::kF32;
  int64_t n_ = 0;
  device::DeviceBuffer buffer_;
};

/// n normal values times `scale` at `data`; queued on `stream`.
void fill_normal(void* data, DType dtype, int64_t n, uint64_t seed, float scale, cudaStream_t stream);

/// Random seed of this run, printed by every program: inputs are fresh unless ESM_TEST_SEED is given.
uint64_t run_seed();

}  // namespace esm::test
