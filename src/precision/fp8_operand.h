// Operands of FP8 products as cuBLASLt has them.
#pragma once
#include "device/gemm_fp8.h"
#include "precision/formats.h"

namespace esm::precision {

/// InternalError for an operand that no FP8 product takes: other formats, MX and NV groups.
device::Fp8Operand fp8_operand(const Operand& operand);

}  // namespace esm::precision
