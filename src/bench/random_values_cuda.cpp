#include "bench/random_values_cuda.h"

#include <algorithm>
#include <vector>

#include "base/philox.h"
#include "device/cuda_check.h"
#include "device/fp8_values.h"
#include "kernels/cast.h"

namespace esm::bench {
namespace {

constexpr int64_t kBlock = int64_t{1} << 22;

}  // namespace

RandomValues::RandomValues() : block_("random values", 4 * kBlock) {
  std::vector<float> host(static_cast<size_t>(kBlock));
  for (size_t i = 0; i < host.size(); i += 4) {
    const PhiloxResult r = philox(3, RandomStream::kSynthetic, i);
    for (size_t k = 0; k < 4; k += 2) {
      const auto pair = normal_pair(r.v[k], r.v[k + 1]);
      host[i + k] = static_cast<float>(pair[0]);
      host[i + k + 1] = static_cast<float>(pair[1]);
    }
  }
  ESM_CUDA(cudaMemcpy(block_.get(), host.data(), static_cast<size_t>(block_.bytes()), cudaMemcpyHostToDevice));
}

void RandomValues::fill(DType dtype, int64_t n, void* to, cudaStream_t stream) const {
  for (int64_t at = 0; at < n; at += kBlock)
    ESM_CUDA(kernels::launch(kernels::CastArgs{.from_dtype = DType::kF32,
                                               .to_dtype = dtype,
                                               .n = std::min(kBlock, n - at),
                                               .from = block_.get(),
                                               .to = static_cast<char*>(to) + at * size_of(dtype)},
                             stream));
}

device::DeviceBuffer RandomValues::make(const char* purpose, DType dtype, int64_t n, cudaStream_t stream) const {
  device::DeviceBuffer buffer(purpose, n * size_of(dtype));
  fill(dtype, n, buffer.get(), stream);
  return buffer;
}

device::DeviceBuffer make_repeated(const char* purpose, const void* block, int64_t block_bytes, int64_t bytes,
                                   cudaStream_t stream) {
  device::DeviceBuffer buffer(purpose, bytes);
  const auto copy = [&](const void* from, int64_t at, int64_t n, cudaMemcpyKind kind) {
    ESM_CUDA(cudaMemcpyAsync(buffer.as<char>() + at, from, static_cast<size_t>(n), kind, stream));
  };
  copy(block, 0, std::min(block_bytes, bytes), cudaMemcpyHostToDevice);
  ESM_CUDA(cudaStreamSynchronize(stream));
  for (int64_t done = block_bytes; done < bytes; done *= 2)
    copy(buffer.get(), done, std::min(done, bytes - done), cudaMemcpyDeviceToDevice);
  return buffer;
}

device::DeviceBuffer make_fp8_values(const char* purpose, DType dtype, int64_t n, uint32_t which, cudaStream_t stream) {
  std::vector<uint8_t> codes((size_t{1} << 20) + 1);  // odd: no two rows alike
  for (size_t i = 0; i < codes.size(); ++i) {
    const PhiloxResult r = philox(4, RandomStream::kSynthetic, i, which);
    codes[i] = device::fp8_from_float(dtype, 64.0f * static_cast<float>(normal_pair(r.v[0], r.v[1])[0]));
  }
  return make_repeated(purpose, codes.data(), static_cast<int64_t>(codes.size()), n, stream);
}

}  // namespace esm::bench
