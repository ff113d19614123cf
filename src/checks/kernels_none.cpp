#include "base/check.h"
#include "checks/kernels.h"

namespace esm::checks {

std::vector<std::string> kernel_families() { return {}; }

CheckGroup check_kernels(const std::string& family, uint64_t) {
  fail<DeviceError>("this program was built without CUDA: it has no kernels to check ({})", family);
}

}  // namespace esm::checks
