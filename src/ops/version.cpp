#include "ops/version.h"

#include <fmt/core.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>  // the only call that asks LibTorch itself for its version

#include "ops/aten.h"
#include "ops/cudnn_sdpa.h"

namespace esm::ops {

std::string libtorch_version() { return TORCH_VERSION; }

std::vector<device::LibraryVersion> compared_versions() {
  const uint64_t found = aoti_torch_abi_version();  // major, minor, patch in the upper bytes
  std::vector<device::LibraryVersion> versions{
      {"LibTorch", fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH),
       fmt::format("{}.{}.{}", found >> 56, found >> 48 & 0xff, found >> 40 & 0xff)}};
  for (device::LibraryVersion& cudnn : cudnn_versions()) versions.push_back(std::move(cudnn));
  return versions;
}

}  // namespace esm::ops
