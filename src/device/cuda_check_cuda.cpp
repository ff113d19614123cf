#include "device/cuda_check.h"

#include <cstring>

#include "base/check.h"

namespace esm::device::detail {
namespace {

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

}  // namespace

void cuda_failed(cudaError_t status, const char* expression, const char* file, int line) {
  cudaGetLastError();
  fail<DeviceError>("CUDA: {} ({}) from {} at {}:{}", cudaGetErrorString(status), cudaGetErrorName(status), expression,
                    file_name(file), line);
}

void cublaslt_failed(cublasStatus_t status, const char* expression, const char* file, int line) {
  const cudaError_t sticky = cudaGetLastError();
  fail<DeviceError>("cuBLASLt: {} ({}) from {} at {}:{}{}{}", cublasLtGetStatusString(status),
                    cublasLtGetStatusName(status), expression, file_name(file), line,
                    sticky == cudaSuccess ? "" : "; CUDA: ", sticky == cudaSuccess ? "" : cudaGetErrorString(sticky));
}

}  // namespace esm::device::detail
