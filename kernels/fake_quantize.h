// What MX and NVFP4 lose, on hardware that does not multiply them; CPU twin: quantize() and dequantize() of
// ops/quantize.h, rounded to BF16. Arithmetic: fp8_scale.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/quantize_groups.h"

namespace esm::kernels {

/// y = dequantized(quantized(x)), BF16, rounded to nearest even; y may be x. Groups are neighbours of a row, or of a
/// column for `along_rows` (operands that a GEMM sums over rows, like both of a weight gradient); they start at the
/// first row and column, and the last one may be short. Rows from *row_count on (device memory; null: all rows count)
/// are not looked at: y is 0 there, and they are outside the groups. Equal to the CPU twin bit for bit, but for the
/// payload of NaN. x and y: dense [rows, cols], 16-byte aligned, cols a multiple of 8, rows of any number. Bytes moved:
/// 4 * rows * cols.
struct FakeQuantizeArgs {
  GroupFormat format = GroupFormat::kMx32;
  bool along_rows = false;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const int32_t* row_count = nullptr;
  const float* amax = nullptr;  // [1] in device memory: of the rows that count; kNv16 only
  void* y = nullptr;
};
cudaError_t launch(const FakeQuantizeArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
