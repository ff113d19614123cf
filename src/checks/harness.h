// What the checks of kernels share: device buffers with guards and random inputs. Needs nothing of the program but
// headers, so that the test program of the kernels starts on a machine that has a GPU and little else.
#pragma once
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "checks/report.h"

namespace esm::checks {

template <class... Arguments>
std::string text(const char* format, Arguments... arguments) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, arguments...);
  return buffer;
}

/// Throws DeviceError. (ESM_CUDA of device/ would bring cuBLASLt along.)
inline void require_cuda(cudaError_t error, const char* expression, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const char* name = std::strrchr(file, '/');
  throw DeviceError(
      text("%s (%s:%d: %.120s)", cudaGetErrorString(error), name != nullptr ? name + 1 : file, line, expression));
}
#define CHECK_CUDA(expression) ::esm::checks::require_cuda((expression), #expression, __FILE__, __LINE__)

/// Device memory of n values, filled with 0xff bytes (NaN) and followed by a guard.
template <class T>
class DeviceBuffer {
 public:
  static constexpr size_t kGuardBytes = 256;
  explicit DeviceBuffer(size_t n) : n_(n) {
    CHECK_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), n_ * sizeof(T) + kGuardBytes));
    poison();
  }
  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) { upload(host); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* get() const { return data_; }
  size_t size() const { return n_; }
  void poison() { CHECK_CUDA(cudaMemset(data_, 0xff, n_ * sizeof(T) + kGuardBytes)); }
  void upload(const std::vector<T>& host) {
    if (n_ > 0) CHECK_CUDA(cudaMemcpy(data_, host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  /// Waits for the device; throws DeviceError if something wrote behind the buffer.
  std::vector<T> download() const {
    std::vector<unsigned char> bytes(n_ * sizeof(T) + kGuardBytes);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost));
    for (size_t i = n_ * sizeof(T); i < bytes.size(); ++i)
      if (bytes[i] != 0xff) throw DeviceError("a kernel wrote behind its buffer");
    std::vector<T> host(n_);
    if (n_ > 0) std::memcpy(host.data(), bytes.data(), n_ * sizeof(T));
    return host;
  }

 private:
  size_t n_;
  T* data_ = nullptr;
};

/// A tensor of FP32 or BF16 values, FP32 on the host side (rounded to the type before upload).
class Activations {
 public:
  Activations(DType dtype, size_t n) : dtype_(dtype), bytes_(n * static_cast<size_t>(size_of(dtype))) {}
  Activations(DType dtype, std::vector<float>& host) : Activations(dtype, host.size()) {
    round(dtype, host);
    upload(host);
  }
  static void round(DType dtype, std::vector<float>& host) {
    if (dtype == DType::kBF16)
      for (float& x : host) x = float_from_bf16(bf16_from_float(x));
  }
  void* get() const { return bytes_.get(); }
  void poison() { bytes_.poison(); }
  void upload(const std::vector<float>& host) {
    std::vector<uint8_t> raw(bytes_.size());
    if (dtype_ == DType::kBF16)
      for (size_t i = 0; i < host.size(); ++i) {
        const uint16_t bits = bf16_from_float(host[i]);
        std::memcpy(&raw[2 * i], &bits, 2);
      }
    else
      std::memcpy(raw.data(), host.data(), raw.size());
    bytes_.upload(raw);
  }
  std::vector<float> download() const {
    const std::vector<uint8_t> raw = bytes_.download();
    std::vector<float> host(raw.size() / static_cast<size_t>(size_of(dtype_)));
    if (dtype_ == DType::kBF16)
      for (size_t i = 0; i < host.size(); ++i) {
        uint16_t bits;
        std::memcpy(&bits, &raw[2 * i], 2);
        host[i] = float_from_bf16(bits);
      }
    else
      std::memcpy(host.data(), raw.data(), raw.size());
    return host;
  }

 private:
  DType dtype_;
  DeviceBuffer<uint8_t> bytes_;
};

/// Fresh inputs for every run; the seed is printed and may be given again.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint32_t word() { return philox(seed_, RandomStream::kSynthetic, counter_++).v[0]; }
  float uniform(float low, float high) { return low + (high - low) * uniform01(word()); }
  int64_t below(int64_t n) { return uniform_below(word(), static_cast<uint32_t>(n)); }
  std::vector<float> normals(int64_t n, float scale = 1, float mean = 0) {
    std::vector<float> v(static_cast<size_t>(n));
    for (size_t i = 0; i < v.size(); i += 4) {
      const PhiloxResult r = philox(seed_, RandomStream::kSynthetic, counter_++);
      for (size_t k = 0; k < 4 && i + k < v.size(); k += 2) {
        const float radius = std::sqrt(-2.0f * std::log((static_cast<float>(r.v[k] >> 8) + 0.5f) * 0x1p-24f));
        const float angle = 6.2831853f * uniform01(r.v[k + 1]);
        v[i + k] = mean + scale * radius * std::cos(angle);
        if (i + k + 1 < v.size()) v[i + k + 1] = mean + scale * radius * std::sin(angle);
      }
    }
    return v;
  }

 private:
  uint64_t seed_, counter_ = 0;
};

/// Half a unit in the last place of the type, relative: the error of the final rounding.
inline double rounding(DType dtype) { return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24; }

inline const char* name_of(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

inline size_t different(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) n += std::memcmp(&a[i], &b[i], 4) != 0;
  return n;
}

// One per family.
void layer_norm_checks(Random& random, Report& report);
void gelu_checks(Random& random, Report& report);
void rotary_checks(Random& random, Report& report);
void embedding_checks(Random& random, Report& report);
void head_checks(Random& random, Report& report);
void reduce_checks(Random& random, Report& report);
void adamw_checks(Random& random, Report& report);
void quantize_checks(Random& random, Report& report);
void rotary_fp8_checks(Random& random, Report& report);
void gelu_fp8_checks(Random& random, Report& report);
void layer_norm_fp8_checks(Random& random, Report& report);
void fp8_scales_checks(Random& random, Report& report);
void fp8_counts_checks(Random& random, Report& report);
void fake_quantize_checks(Random& random, Report& report);
void quantize_groups_checks(Random& random, Report& report);

}  // namespace esm::checks
