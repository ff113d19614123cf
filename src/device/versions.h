// Versions of the device libraries this binary was built with and finds at run time.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace esm::device {

/// (library, version) for CUDA, cuBLASLt and NCCL; "not built in" in a build without CUDA.
std::vector<std::pair<std::string, std::string>> library_versions();

/// A library as this program was built with it, and as it finds it now.
struct LibraryVersion {
  std::string name, built, found;
};
/// CUDA runtime, cuBLASLt and NCCL; none in a build without CUDA.
std::vector<LibraryVersion> compared_versions();

struct DriverVersion {
  std::string text;      // newest CUDA that the driver knows, "13.0"; empty: no driver
  bool too_old = false;  // for the CUDA runtime that this program has
};
/// No driver in a build without CUDA.
DriverVersion driver_version();

/// CUDA devices that this process can use; 0 without a driver, without a GPU, or in a build without CUDA.
int cuda_device_count();

}  // namespace esm::device
