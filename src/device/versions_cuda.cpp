#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include "device/versions.h"

namespace esm::device {
namespace {

std::string thousands_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string hundreds_version(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

int runtime_version() {
  int version = 0;
  cudaRuntimeGetVersion(&version);
  return version;
}

/// 0: no driver.
int driver_number() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

size_t nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return static_cast<size_t>(version);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  const int driver = driver_number();
  const std::string devices =
      driver == 0 ? std::string("no driver") : fmt::format("driver for CUDA {}", thousands_version(driver));
  return {
      {"CUDA", fmt::format("{} ({}, {} devices)", thousands_version(runtime_version()), devices, cuda_device_count())},
      {"cuBLASLt", hundreds_version(cublasLtGetVersion())},
      {"NCCL", hundreds_version(nccl_version())}};
}

std::vector<LibraryVersion> compared_versions() {
  return {{"CUDA runtime", thousands_version(CUDART_VERSION), thousands_version(runtime_version())},
          {"cuBLASLt", hundreds_version(CUBLAS_VERSION), hundreds_version(cublasLtGetVersion())},
          {"NCCL", hundreds_version(NCCL_VERSION_CODE), hundreds_version(nccl_version())}};
}

DriverVersion driver_version() {
  const int driver = driver_number();
  if (driver == 0) return {};
  // Within a major version drivers run programs of newer toolkits (CUDA minor version compatibility).
  return {.text = thousands_version(driver), .too_old = driver / 1000 < runtime_version() / 1000};
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
