// cuBLASLt's products against FP64 on the host, on the current device.
#pragma once
#include <cstdint>

#include "checks/report.h"

namespace esm::checks {

/// Runs cases::gemm_cases() with cuBLASLt's first proposals: each element, the L2 error, the bias gradient, and a
/// second run bit for bit. A case whose epilogue this cuBLASLt lacks is left out if it may be. Takes some seconds, most
/// of them on the host. A CUDA error ends the group and is told in the result; DeviceError in a build without CUDA.
CheckGroup check_gemms(uint64_t seed);

/// The same for cases::fp8_gemm_cases(), against FP64 over the same FP8 values and scales: what is measured is the
/// error of the sums, not that of FP8. Modes of scales that the device need not have are left out where it lacks them.
CheckGroup check_fp8_gemms(uint64_t seed);

}  // namespace esm::checks
