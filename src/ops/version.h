// Version of the tensor library.
#pragma once
#include <string>

namespace esm::ops {

/// "2.11.0+cu130".
std::string libtorch_version();

}  // namespace esm::ops
