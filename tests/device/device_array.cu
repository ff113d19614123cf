#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/half.h"
#include "base/philox.h"
#include "tests/device/device_array.h"

namespace esm::test {
namespace {

template <class T>
__global__ void fill_normal_kernel(T* data, int64_t n, uint64_t seed, float scale) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const PhiloxResult r = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(i));
    const float u = (static_cast<float>(r.v[0] >> 8) + 0.5f) * 0x1p-24f;
    const float z = sqrtf(-2.0f * logf(u)) * cospif(2.0f * uniform01(r.v[1])) * scale;
    if constexpr (std::is_same_v<T, float>)
      data[i] = z;
    else
      data[i] = __float2bfloat16_rn(z);
  }
}

}  // namespace

void fill_normal(void* data, DType dtype, int64_t n, uint64_t seed, float scale, cudaStream_t stream) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((n + 255) / 256, 132 * 16));
  if (dtype == DType::kF32)
    fill_normal_kernel<<<blocks, 256, 0, stream>>>(static_cast<float*>(data), n, seed, scale);
  else
    fill_normal_kernel<<<blocks, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(data), n, seed, scale);
  ESM_CUDA(cudaGetLastError());
}

uint64_t run_seed() {
  const char* given = std::getenv("ESM_TEST_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) % 1000000007u;
}

DeviceArray::DeviceArray(DType dtype, int64_t n)
    : dtype_(dtype), n_(n), buffer_("a test array", n * size_of(dtype) + kGuardBytes) {
  ESM_CUDA(cudaMemset(buffer_.get(), 0xff, static_cast<size_t>(buffer_.bytes())));
  ESM_CUDA(cudaDeviceSynchronize());  // streams that do not wait for the default one
}

void DeviceArray::poison(cudaStream_t stream) const {
  ESM_CUDA(cudaMemsetAsync(buffer_.get(), 0xff, static_cast<size_t>(bytes()), stream));
}

void DeviceArray::fill_normal(uint64_t seed, float scale, cudaStream_t stream) const {
  test::fill_normal(buffer_.get(), dtype_, n_, seed, scale, stream);
}

void DeviceArray::upload(const void* host, cudaStream_t stream) const {
  ESM_CUDA(cudaMemcpyAsync(buffer_.get(), host, static_cast<size_t>(bytes()), cudaMemcpyHostToDevice, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
}

std::vector<std::byte> DeviceArray::download(cudaStream_t stream) const {
  std::vector<std::byte> host(static_cast<size_t>(bytes()));
  ESM_CUDA(cudaMemcpyAsync(host.data(), buffer_.get(), host.size(), cudaMemcpyDeviceToHost, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
  return host;
}

std::vector<double> DeviceArray::values(cudaStream_t stream) const {
  const std::vector<std::byte> raw = download(stream);
  std::vector<double> result(static_cast<size_t>(n_));
  for (size_t i = 0; i < result.size(); ++i) {
    if (dtype_ == DType::kBF16) {
      uint16_t bits;
      std::memcpy(&bits, raw.data() + 2 * i, 2);
      result[i] = float_from_bf16(bits);
    } else {
      float value;
      std::memcpy(&value, raw.data() + 4 * i, 4);
      result[i] = value;
    }
  }
  return result;
}

bool DeviceArray::guard_intact(cudaStream_t stream) const {
  std::vector<unsigned char> guard(static_cast<size_t>(kGuardBytes));
  ESM_CUDA(
      cudaMemcpyAsync(guard.data(), buffer_.as<std::byte>() + bytes(), guard.size(), cudaMemcpyDeviceToHost, stream));
  ESM_CUDA(cudaStreamSynchronize(stream));
  for (const unsigned char byte : guard)
    if (byte != 0xff) return false;
  return true;
}

}  // namespace esm::test
