#include "base/check.h"
#include "device/properties.h"

namespace esm::device {

Properties properties(int index) {
  fail<DeviceError>("this program was built without CUDA: there is no device {}; choose device cpu", index);
}

void use_device(int index) { properties(index); }

}  // namespace esm::device
