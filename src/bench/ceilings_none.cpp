#include "base/check.h"
#include "bench/ceilings.h"

namespace esm::bench {
namespace {

[[noreturn]] void no_cuda() { fail<DeviceError>("this program was built without CUDA: it has no device to measure"); }

}  // namespace

CopyRates measure_copy() { no_cuda(); }
GemmCeiling measure_gemm() { no_cuda(); }
Fp8GemmCeiling measure_fp8_gemm() { no_cuda(); }

}  // namespace esm::bench
