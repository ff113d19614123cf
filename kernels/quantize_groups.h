// Tensors to MXFP8 and NVFP4, as tensor cores of Blackwell read them; CPU twin: quantize() of ops/quantize.h, with
// these layouts. Arithmetic: fp8_scale.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace esm::kernels {

/// Which elements share a scale, and how it and they are written.
///   kMx32: 32 neighbours; UE8M0, E4M3.
///   kNv16: 16 neighbours; UE4M3 and the FP32 factor nv_tensor_scale(*amax) of the tensor, E2M1, two in a byte.
enum class GroupFormat { kMx32, kNv16 };

/// Both orders of `from` in one reading, each with groups along its own rows, so with scales and codes of its own. One
/// of the orders may be left out. Rows from *row_count on (device memory; null: all rows count) are not looked at:
/// they are zeros. Equal to the CPU twin bit for bit. from: dense BF16 [rows, cols]; rows and cols are multiples of
/// kMultiple; all pointers 16-byte aligned. Bytes moved: rows * cols * 2 and, for each order, 1 + 1/32 (kMx32) or 1/2 +
/// 1/16 (kNv16).
struct QuantizeGroupsArgs {
  static constexpr int64_t kMultiple = 32;
  GroupFormat format = GroupFormat::kMx32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* from = nullptr;
  const int32_t* row_count = nullptr;
  const float* amax = nullptr;       // [1] in device memory: of the rows that count; kNv16 only
  uint8_t* to_rows = nullptr;        // [rows, cols] of codes; null: not wanted, nor its scales
  uint8_t* to_transposed = nullptr;  // [cols, rows] of codes; null: not wanted, nor its scales
  uint8_t* row_scales = nullptr;     // group_scale_index(row, group of columns, groups), padding included
  uint8_t* column_scales = nullptr;  // group_scale_index(column, group of rows, groups), padding included
  float* tensor_inverse = nullptr;   // [1] in device memory: 1 / nv_tensor_scale(*amax); kNv16 only
};
cudaError_t launch(const QuantizeGroupsArgs& args, cudaStream_t stream);

}  // namespace esm::kernels
