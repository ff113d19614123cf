// Checks of CUDA and cuBLASLt calls, for files that are built with CUDA only (*_cuda.cpp).
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace esm::device::detail {

/// Throws DeviceError with expression, place and the library's text; clears CUDA's sticky error first.
[[noreturn]] void cuda_failed(cudaError_t status, const char* expression, const char* file, int line);
[[noreturn]] void cublaslt_failed(cublasStatus_t status, const char* expression, const char* file, int line);

}  // namespace esm::device::detail

/// ESM_CUDA(cudaEventRecord(event, stream)): throws DeviceError unless the call succeeds. Allocations go through
/// DeviceBuffer, which names the bytes that were asked for.
#define ESM_CUDA(call)                                                                                        \
  do {                                                                                                        \
    const cudaError_t esm_status = (call);                                                                    \
    if (esm_status != cudaSuccess) ::esm::device::detail::cuda_failed(esm_status, #call, __FILE__, __LINE__); \
  } while (false)

#define ESM_CUBLASLT(call)                                                           \
  do {                                                                               \
    const cublasStatus_t esm_status = (call);                                        \
    if (esm_status != CUBLAS_STATUS_SUCCESS)                                         \
      ::esm::device::detail::cublaslt_failed(esm_status, #call, __FILE__, __LINE__); \
  } while (false)
