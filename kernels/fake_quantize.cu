#include "kernels/fake_quantize.h"

#include "kernels/group_codes.cuh"

namespace esm::kernels {
namespace {

/// There and back, two elements at a time.
template <class Group>
struct RoundTrip {
  Group group;
  float inverse, tensor_inverse;
  __device__ RoundTrip(uint32_t amax, float tensor)
      : group(amax, tensor), inverse(group.inverse()), tensor_inverse(1.0f / tensor) {}
  __device__ void pass(float& x, float& y) const {
    const float2 values = Group::values(group.codes(x, y));
    x = values.x * inverse;
    y = values.y * inverse;
    if constexpr (std::is_same_v<Group, NvGroup>) {
      x *= tensor_inverse;
      y *= tensor_inverse;
    }
  }
};

template <class Group, bool kAlongRows>
__global__ void __launch_bounds__(kGroupThreads) fake_quantize_kernel(FakeQuantizeArgs a) {
  const int64_t across = (a.cols + kGroupColumns - 1) / kGroupColumns;
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kGroupThreads / 32) + threadIdx.x / 32;
  if (warp / across * kGroupRows >= a.rows) return;  // the whole warp
  const GroupPlace at(warp, across);
  const int64_t counted = counted_rows(a.rows, a.row_count);
  const bool inside = at.column < a.cols;
  Vec8<Bf16> raw[8];
#pragma unroll
  for (int r = 0; r < 8; ++r)
    raw[r] = inside && at.row + r < counted ? load8(static_cast<const Bf16*>(a.x) + (at.row + r) * a.cols + at.column)
                                            : zero8<Bf16>();
  const float tensor = std::is_same_v<Group, NvGroup> ? nv_tensor_scale(*a.amax) : 1.0f;
  Bf16* y = static_cast<Bf16*>(a.y) + at.row * a.cols + at.column;
  const auto store = [&](int r, const float(&e)[8]) {
    if (inside && at.row + r < a.rows) store8(y + r * a.cols, e);
  };
  if constexpr (kAlongRows) {
    uint32_t amax[8];
    column_group_amax<Group>(raw, amax);
    float e[8][8];
#pragma unroll
    for (int r = 0; r < 8; ++r) unpack(raw[r], e[r]);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const RoundTrip<Group> trip(amax[k], tensor);
#pragma unroll
      for (int r = 0; r < 8; r += 2) trip.pass(e[r][k], e[r + 1][k]);
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) store(r, e[r]);
  } else {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const RoundTrip<Group> trip(row_group_amax<Group>(raw[r]), tensor);
      float e[8];
      unpack(raw[r], e);
#pragma unroll
      for (int k = 0; k < 8; k += 2) trip.pass(e[k], e[k + 1]);
      store(r, e);
    }
  }
}

template <class Group>
cudaError_t run(const FakeQuantizeArgs& a, cudaStream_t stream) {
  const int64_t warps = ceil_div(a.rows, kGroupRows) * ceil_div(a.cols, kGroupColumns);
  const dim3 grid(static_cast<unsigned>(ceil_div(warps, kGroupThreads / 32)));
  return start(a.along_rows ? fake_quantize_kernel<Group, true> : fake_quantize_kernel<Group, false>, grid,
               dim3(kGroupThreads), 0, stream, a);
}

}  // namespace

cudaError_t launch(const FakeQuantizeArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 8 != 0 || !aligned16(args.x) || !aligned16(args.y) || args.x == nullptr || args.y == nullptr ||
      (args.format == GroupFormat::kNv16) != (args.amax != nullptr))
    return cudaErrorInvalidValue;
  return args.format == GroupFormat::kMx32 ? run<MxGroup>(args, stream) : run<NvGroup>(args, stream);
}

}  // namespace esm::kernels
