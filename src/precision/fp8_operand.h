// Operands and products in codes as cuBLASLt has them.
#pragma once
#include <vector>

#include "device/gemm_fp8.h"
#include "precision/linear_formats.h"

namespace esm::precision {

/// InternalError for an operand that is not quantized.
device::Fp8Operand fp8_operand(const Operand& operand);

/// What a linear layer with the formats of kHardware asks for in training: forward with bias, without and with a
/// residual; dgrad; wgrad that overwrites, and that adds.
std::vector<device::GemmDesc> products_of(const LinearFormats& formats, int64_t out, int64_t in, int64_t tokens);

}  // namespace esm::precision
