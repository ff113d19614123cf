#include "bench/random_values_cuda.h"

#include <algorithm>
#include <vector>

#include "base/philox.h"
#include "device/cuda_check.h"
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

}  // namespace esm::bench
