#include "ops/cudnn_sdpa.h"
#include "ops/version.h"

namespace esm::ops {

std::string cudnn_version() { return "not built in"; }
std::vector<device::LibraryVersion> cudnn_versions() { return {}; }

}  // namespace esm::ops
