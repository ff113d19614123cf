#include "device/versions.h"

namespace esm::device {

std::vector<std::pair<std::string, std::string>> library_versions() {
  return {{"CUDA", "not built in"}, {"cuBLASLt", "not built in"}, {"NCCL", "not built in"}};
}

std::vector<LibraryVersion> compared_versions() { return {}; }

DriverVersion driver_version() { return {}; }

int cuda_device_count() { return 0; }

}  // namespace esm::device
