#include "base/check.h"
#include "bench/gemm_accuracy.h"

namespace esm::bench {

std::vector<GemmAccuracy> measure_gemm_accuracy(int64_t, int64_t) {
  fail<DeviceError>("this program was built without CUDA: it has no cuBLASLt to measure");
}

}  // namespace esm::bench
