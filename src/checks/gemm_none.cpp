#include "base/check.h"
#include "checks/gemm.h"

namespace esm::checks {

CheckGroup check_gemms(uint64_t) { fail<DeviceError>("this program was built without CUDA: it has no cuBLASLt"); }
CheckGroup check_fp8_gemms(uint64_t seed) { return check_gemms(seed); }

}  // namespace esm::checks
