#include "base/check.h"
#include "bench/gemms.h"

namespace esm::bench {

std::vector<GemmTime> time_gemms(const std::vector<NamedGemm>&) {
  fail<DeviceError>("this program was built without CUDA: it has no cuBLASLt to measure");
}

}  // namespace esm::bench
