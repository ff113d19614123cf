// Tensors to FP8; CPU twin: ops/quantize.h, with these layouts.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/fp8_out.h"

namespace esm::kernels {

/// Everywhere: dense matrices of kF32 or kBF16, 16-byte aligned; rows and columns are multiples of kFp8Multiple. Rows
/// from *row_count on (device memory; null: all rows count) are not looked at: their bytes are 0, and they are outside
/// amax and sums. E: bytes of an element that is read.

/// to.rows = from, scaled as a whole. Bytes moved: rows * cols * (E + 1).
struct QuantizeArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* from = nullptr;
  const int32_t* row_count = nullptr;
  Fp8Out to;  // rows only
};
cudaError_t launch(const QuantizeArgs& args, cudaStream_t stream);

/// Both orders of up to kMaxMatrices matrices in one reading; sum += column sums
/// of `from` (a bias gradient): FP32, partial sums of tiles, then in their order. One type and one FP8 type for all.
/// Weights go through here once an optimizer step, a layer a launch, from their BF16 copies: 4 bytes an element. AdamW
/// itself could write both orders for 2, if it walked over tiles of each matrix instead of flat buffers in every format
/// of its state. On ESM-2 650M (649 M elements) that is 2.6 against 1.3 GB, some 0.35 ms of a step of 400 ms at 65,536
/// tokens: not worth it.
/// Bytes moved: rows * cols * (E + 2), and with a sum 1/16 more per 128 rows read (under 2 %).
struct QuantizeTransposeArgs {
  static constexpr int kMaxMatrices = 8;
  struct Matrix {
    int64_t rows = 0;
    int64_t cols = 0;
    const void* from = nullptr;
    Fp8Out to;                  // one of the orders may be left out
    float* sum = nullptr;       // null, or [cols], added to
    void* workspace = nullptr;  // quantize_transpose_workspace() bytes, with sum
  };
  DType dtype = DType::kBF16;
  const int32_t* row_count = nullptr;  // of every matrix
  int n_matrices = 1;
  Matrix matrix[kMaxMatrices] = {};
};
size_t quantize_transpose_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const QuantizeTransposeArgs& args, cudaStream_t stream);

/// *amax = max(*amax, |x|), for scales of the moment. Bytes moved: rows * cols * E.
struct AmaxArgs {
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* x = nullptr;
  const int32_t* row_count = nullptr;
  float* amax = nullptr;
};
cudaError_t launch(const AmaxArgs& args, cudaStream_t stream);

/// Scales of one block of elements each, of the values at hand: the power of two that takes the block's amax into the
/// range (scale_exponent() in fp8_scale.h, margin 0), its inverse beside it for the GEMM.
///   k1x128: rows[r, c] by 128 columns of a row, transposed[c, r] by 128 rows of a column (the blocks lie along the
///     summed dimension of the GEMM that reads it).
///   k128x128: by square, one scale for both orders.
///   kOuter: rows by row, transposed by column. Reads twice.
enum class BlockScaling { k1x128, k128x128, kOuter };

/// Inverse scales in FP32:
///   k1x128: row_inverse [ceil(cols / 128), rows], column_inverse [ceil(rows / 128), cols]
///   k128x128: row_inverse [ceil(rows / 128), row_stride], column_inverse [ceil(cols / 128), column_stride]
///   kOuter: row_inverse [rows], column_inverse [cols]
/// Bytes moved: rows * cols * (E + 1 for each order), kOuter rows * cols * E more; scales under 4 %.
struct QuantizeBlocksArgs {
  DType dtype = DType::kBF16;
  BlockScaling scaling = BlockScaling::k1x128;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* from = nullptr;
  const int32_t* row_count = nullptr;
  DType to_dtype = DType::kF8E4M3;
  uint8_t* to_rows = nullptr;        // null: not wanted, nor its scales
  uint8_t* to_transposed = nullptr;  // null: not wanted, nor its scales
  float* row_inverse = nullptr;
  float* column_inverse = nullptr;
  int64_t row_stride = 0;  // k128x128, at least ceil(cols / 128); cuBLASLt wants a multiple of 4. Gaps stay as they are
  int64_t column_stride = 0;  // k128x128, at least ceil(rows / 128)
  void* workspace = nullptr;  // kOuter: quantize_outer_workspace() bytes
};
size_t quantize_outer_workspace(int64_t rows, int64_t cols);
cudaError_t launch(const QuantizeBlocksArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
