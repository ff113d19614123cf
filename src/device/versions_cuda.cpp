#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include "device/versions.h"

namespace esm::device {
namespace {

std::string thousands_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  int runtime = 0;
  int driver = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const std::string devices =
      driver == 0 ? std::string("no driver") : fmt::format("driver for CUDA {}", thousands_version(driver));
  const size_t lt = cublasLtGetVersion();
  int nccl = 0;
  ncclGetVersion(&nccl);
  return {{"CUDA", fmt::format("{} ({}, {} devices)", thousands_version(runtime), devices, cuda_device_count())},
          {"cuBLASLt", fmt::format("{}.{}.{}", lt / 10000, lt % 10000 / 100, lt % 100)},
          {"NCCL", fmt::format("{}.{}.{}", nccl / 10000, nccl % 10000 / 100, nccl % 100)}};
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // clears the sticky "no driver" so that nobody else trips over it
    return 0;
  }
  return count;
}

}  // namespace esm::device
