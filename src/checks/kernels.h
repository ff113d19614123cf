// Every CUDA kernel against a double-precision reference on the host, on the current device. The same cases serve the
// test program (tests/kernels) and `esmtrain doctor`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checks/report.h"

namespace esm::checks {

/// Names of the families: "layer_norm", "gelu", ...; none in a build without CUDA.
std::vector<std::string> kernel_families();

/// Runs all cases of one family on random inputs; equal seeds give equal inputs. Takes up to some seconds, most of them
/// on the host. A CUDA error ends the family and is told in the result; DeviceError in a build without CUDA.
CheckGroup check_kernels(const std::string& family, uint64_t seed);

}  // namespace esm::checks
