// Which GPUs a build holds kernels for.
#pragma once
#include <string_view>

namespace esm::device {

/// `architectures`: those of the build as CMake writes them, "80;90a;100f-real" (or with commas). Code of 80 runs on
/// every 8.x from there, and on what comes later through its PTX (not with -real); 90a runs on 9.0 alone, 100f on
/// 10.x. capability: 90 for 9.0.
bool has_code_for(std::string_view architectures, int capability);

}  // namespace esm::device
