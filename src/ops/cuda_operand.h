// Operands of products as kernels want them. For _cuda.cpp files.
#pragma once
#include "kernels/fp8_out.h"
#include "ops/cuda_tensor.h"
#include "ops/gemm_operand.h"

namespace esm::ops::cuda {

inline DType fp8_type(precision::Format format) {
  ESM_CHECK(format == precision::Format::kE4M3 || format == precision::Format::kE5M2, "codes of 8 bits are wanted");
  return format == precision::Format::kE4M3 ? DType::kF8E4M3 : DType::kF8E5M2;
}

/// Floats of Workspace::kPartials that a product of NVFP4 asks for: its alpha and beta.
inline constexpr int64_t kProductFactors = 2;

/// Makes scale and inverse from the amax that has been measured.
void measured_scale(const Context& context, const TensorScale& scale);

/// A matrix that is scaled as a whole, as it is.
inline kernels::Fp8Out fp8_out(const GemmOperand& x) {
  return {.dtype = fp8_type(x.format.format),
          .rows = pointer<uint8_t>(x.codes),
          .transposed = pointer<uint8_t>(x.codes_t),
          .scale = pointer<float>(x.scale.scale),
          .amax = x.scale.measure ? nullptr : pointer<float>(x.scale.amax)};
}

/// The same to measure its amax only.
inline kernels::Fp8Out fp8_measured(const GemmOperand& x) {
  return {.dtype = fp8_type(x.format.format), .amax = pointer<float>(x.scale.amax)};
}

/// Lets `launch_to` write it, before that measure it where the scale is not known.
template <class Launch>
void write_fp8(const Context& context, const GemmOperand& x, const Launch& launch_to) {
  if (x.scale.measure) {
    launch_to(fp8_measured(x));
    measured_scale(context, x.scale);
  }
  launch_to(fp8_out(x));
}

}  // namespace esm::ops::cuda
