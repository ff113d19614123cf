#include "kernels/quantize_groups.h"

#include "kernels/group_codes.cuh"

namespace esm::kernels {
namespace {

/// Codes of eight neighbours.
template <class Group>
__device__ void store_codes(const Group& group, const float (&v)[8], uint8_t* to) {
  const uint32_t a = group.codes(v[0], v[1]), b = group.codes(v[2], v[3]), c = group.codes(v[4], v[5]),
                 d = group.codes(v[6], v[7]);
  if constexpr (Group::kCodeBits == 8)
    store8_bytes(to, make_uint2(a | b << 16, c | d << 16));
  else
    *reinterpret_cast<uint32_t*>(to) = a | b << 8 | c << 16 | d << 24;
}

/// Scale of the group of an operand whose rows have k elements that holds element i of row r; 0 in the padding.
template <class Group>
__device__ void store_scale(uint8_t* scales, int64_t r, int64_t i, int64_t k, bool inside, uint32_t code) {
  const int64_t groups = k / Group::kElements, group = i / Group::kElements;
  if (group < padded_scale_groups(groups))
    scales[group_scale_index(r, group, groups)] = static_cast<uint8_t>(inside ? code : 0u);
}

// Warps cover the padding, too, for its scales.
template <class Group>
__global__ void __launch_bounds__(kGroupThreads) quantize_groups_kernel(QuantizeGroupsArgs a) {
  const int64_t across = padded_scale_rows(a.cols) / kGroupColumns;
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kGroupThreads / 32) + threadIdx.x / 32;
  if (warp / across * kGroupRows >= padded_scale_rows(a.rows)) return;  // the whole warp
  const GroupPlace at(warp, across);
  const int64_t counted = counted_rows(a.rows, a.row_count);
  // The rows of a warp are all inside or all outside, as are the columns of a lane's groups.
  const bool inside = at.row < a.rows && at.column < a.cols;
  Vec8<Bf16> raw[8];
#pragma unroll
  for (int r = 0; r < 8; ++r)
    raw[r] = inside && at.row + r < counted
                 ? load8(static_cast<const Bf16*>(a.from) + (at.row + r) * a.cols + at.column)
                 : zero8<Bf16>();
  const float tensor = std::is_same_v<Group, NvGroup> ? nv_tensor_scale(*a.amax) : 1.0f;
  if (a.tensor_inverse != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *a.tensor_inverse = 1.0f / tensor;
  float e[8][8];
#pragma unroll
  for (int r = 0; r < 8; ++r) unpack(raw[r], e[r]);
  if (a.to_rows != nullptr) {
    const bool writes_scale = threadIdx.x % group_lanes<Group> == 0;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const Group group(row_group_amax<Group>(raw[r]), tensor);
      const int64_t row = at.row + r;
      if (inside) store_codes(group, e[r], a.to_rows + (row * a.cols + at.column) * Group::kCodeBits / 8);
      if (writes_scale) store_scale<Group>(a.row_scales, row, at.column, a.cols, inside, group.scale_code);
    }
  }
  if (a.to_transposed == nullptr) return;
  const bool writes_scale = threadIdx.x % 32 / 8 % group_lanes<Group> == 0;
  uint32_t amax[8];
  column_group_amax<Group>(raw, amax);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const Group group(amax[k], tensor);
    const int64_t column = at.column + k;
    float of_column[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) of_column[r] = e[r][k];
    if (inside) store_codes(group, of_column, a.to_transposed + (column * a.rows + at.row) * Group::kCodeBits / 8);
    if (writes_scale) store_scale<Group>(a.column_scales, column, at.row, a.rows, inside, group.scale_code);
  }
}

template <class Group>
cudaError_t run(const QuantizeGroupsArgs& a, cudaStream_t stream) {
  const int64_t warps = padded_scale_rows(a.rows) / kGroupRows * (padded_scale_rows(a.cols) / kGroupColumns);
  return start(quantize_groups_kernel<Group>, dim3(static_cast<unsigned>(ceil_div(warps, kGroupThreads / 32))),
               dim3(kGroupThreads), 0, stream, a);
}

}  // namespace

cudaError_t launch(const QuantizeGroupsArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  const bool nv = args.format == GroupFormat::kNv16;
  if (args.rows % QuantizeGroupsArgs::kMultiple != 0 || args.cols % QuantizeGroupsArgs::kMultiple != 0 ||
      args.from == nullptr || !aligned16(args.from) || !aligned16(args.to_rows) || !aligned16(args.to_transposed) ||
      (args.to_rows == nullptr) != (args.row_scales == nullptr) ||
      (args.to_transposed == nullptr) != (args.column_scales == nullptr) || nv != (args.amax != nullptr) ||
      (args.tensor_inverse != nullptr && !nv))
    return cudaErrorInvalidValue;
  return nv ? run<NvGroup>(args, stream) : run<MxGroup>(args, stream);
}

}  // namespace esm::kernels
