// Versions of the device libraries this binary was built with and finds at run time.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace esm::device {

/// (library, version) for CUDA, cuBLASLt and NCCL; "not built in" in a build without CUDA.
std::vector<std::pair<std::string, std::string>> library_versions();

/// CUDA devices that this process can use; 0 without a driver, without a GPU, or in a build without CUDA.
int cuda_device_count();

}  // namespace esm::device
