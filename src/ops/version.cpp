#include "ops/version.h"

#include "ops/aten.h"

namespace esm::ops {

std::string libtorch_version() { return TORCH_VERSION; }

}  // namespace esm::ops
