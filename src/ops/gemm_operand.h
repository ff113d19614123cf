// A matrix on its way into products: as it is, or in the codes that a recipe wants. Operations that make such a matrix
// take one of these to write to, and know what to do; layers know no format.
#pragma once
#include "kernels/fp8_scale.h"
#include "ops/workspace.h"
#include "precision/formats.h"

namespace esm::ops {

/// Scale of a whole tensor. Tensors are [1] FP32, where the context works.
struct TensorScale {
  at::Tensor scale, inverse;
  at::Tensor amax;       // raised by whoever makes codes; undefined: left alone
  bool measure = false;  // before any codes, the scale is made from `amax` of the matrix itself
  float greatest = 0;    // finite value of the format
  int margin = 0;        // octaves left free
};

struct GemmOperand {
  GemmOperand() = default;
  /// As it is. Implicit, so that operations take plain matrices as before.
  GemmOperand(at::Tensor matrix) : values(std::move(matrix)) {}  // NOLINT(google-explicit-constructor)

  /// [rows, cols]. What products read if nothing is quantized; else where codes are made from, which operations that
  /// make the codes at once leave alone.
  at::Tensor values;
  precision::Operand format;  // kNone: not quantized
  /// Products read values of codes in the type of `values`: quantized, dequantized.
  bool emulated = false;
  /// Bytes [rows, cols] (of FP4 half as many columns), groups of one scale along cols; emulated: [rows, cols] like
  /// values. Undefined: not wanted.
  at::Tensor codes;
  /// Bytes [cols, rows] (of FP4 half as many columns), groups along rows; emulated: [rows, cols]. Undefined: not
  /// wanted.
  at::Tensor codes_t;
  /// FP32 or bytes, as precision::layout() has them; of a whole tensor scale.inverse. Not with `emulated`.
  at::Tensor inverses, inverses_t;
  TensorScale scale;   // of kTensor and kNv16
  at::Tensor counted;  // [1] int32: rows from there on are padding, with codes of 0; undefined: all rows count

  bool quantized() const { return format.quantized(); }
  bool in_codes() const { return quantized() && !emulated; }
  /// Kernels that make the matrix write its codes at once, scaled as a whole.
  bool fused() const { return in_codes() && format.grouping == precision::Grouping::kTensor; }
  /// What products over cols, or over rows, read that are not in_codes().
  const at::Tensor& by_rows() const { return quantized() ? codes : values; }
  const at::Tensor& by_columns() const { return quantized() ? codes_t : values; }
};

/// Makes the wanted codes from x.values; nothing for a matrix that is not quantized.
void quantize_operand(Workspace& ws, const GemmOperand& x);
/// Announces to `ws` what that will ask for.
struct QuantizeSizes {
  int64_t rows = 0, cols = 0;
  precision::Operand format;
  bool emulated = false;
};
void expect_quantize_operand(Workspace& ws, const QuantizeSizes& sizes);

}  // namespace esm::ops
