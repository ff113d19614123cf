#include "ops/cudnn_sdpa.h"

namespace esm::ops {

std::vector<device::LibraryVersion> cudnn_versions() { return {}; }

}  // namespace esm::ops
