// Versions of the tensor library and of cuDNN.
#pragma once
#include <string>
#include <vector>

#include "device/versions.h"

namespace esm::ops {

/// "2.11.0+cu130", of the headers that this program was built with.
std::string libtorch_version();
/// "9.19.0", of the library that is loaded; "not built in" without CUDA.
std::string cudnn_version();

/// LibTorch and, in a build with CUDA, cuDNN.
std::vector<device::LibraryVersion> compared_versions();

}  // namespace esm::ops
