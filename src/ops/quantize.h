// Matrices to codes of 8 or 4 bits and back on the CPU: the emulation of GEMMs that the hardware lacks, and the twin of
// the CUDA producers: from the same scales they get the same bytes. Sources: kernels/fp8_math.h, kernels/fp8_scale.h.
#pragma once
#include "device/context.h"
#include "ops/aten.h"
#include "precision/formats.h"

namespace esm::ops {

/// x [rows, cols], FP32 or BF16, dense. As a GEMM reads it, it is an operand of `rows` rows with k = cols or, with
/// `transposed`, of `cols` rows with k = rows: codes, groups and scales are then those of x^T, made from x itself.
struct QuantizeArgs {
  at::Tensor x;
  int64_t valid_rows = 0;  // rows of x from here on are padding: their codes are 0 whatever they hold, outside any amax
  precision::Operand to;
  bool transposed = false;
  /// FP32 [1]. kTensor: the factor, a power of two (kernels::tensor_scale(), precision/amax_history.h). kNv16: the
  /// factor of the tensor (kernels::nv_tensor_scale()). Undefined for the rest, whose scales come from the groups.
  at::Tensor scale;
  at::Tensor codes;     // bytes [operand rows, layout().code_bytes], overwritten; unused halves of bytes are 0
  at::Tensor inverses;  // [layout().scales] FP32 or bytes, overwritten; padding is 0. kNv16: of the blocks alone
  at::Tensor amax;      // FP32 [1]: max(*amax, |x|) by the bits, so NaN stays; undefined: not wanted
};

/// The same for any number of threads. Groups without any value but 0 have scale 1 (of kNv16: 0). Tensor scale: NaN
/// stays NaN, infinities saturate (amax shows them). Groups, where the scale is their own: NaN stays NaN; infinities
/// stay (kNv16: become NaN), and what is finite beside them in the group is lost.
void quantize(const Context& context, const QuantizeArgs& args);

struct DequantizeArgs {
  precision::Operand from;
  at::Tensor codes, inverses;  // as quantize() left them, of an operand [rows, k]
  at::Tensor scale;            // kNv16 only, as given to quantize()
  at::Tensor y;                // FP32 [rows, k]: the operand, so x^T where x was quantized with `transposed`
};
/// y = code * inverse: exact, but for the inverse factor of the tensor of kNv16.
void dequantize(const Context& context, const DequantizeArgs& args);

/// Largest |x| of the first `valid_rows` rows; NaN if there is one.
float largest_magnitude(const Context& context, const at::Tensor& x, int64_t valid_rows);

}  // namespace esm::ops
