#include "kernels/fake_quantize.h"

#include <cuda_fp16.h>

#include "kernels/fp8.cuh"
#include "kernels/fp8_scale.h"

namespace esm::kernels {
namespace {

// A warp takes 32 rows of 64 columns, which hold every group whole: lane l the rows 8 * (l / 8) and on of the eight
// columns from 8 * (l % 8) on.
constexpr int kThreads = 128, kRows = 32, kColumns = 64;

__device__ uint32_t lanes_max(uint32_t bits, int offset) {
  return max(bits, __shfl_xor_sync(0xffffffffu, bits, offset));
}
__device__ uint32_t lanes_max_pairs(uint32_t pairs, int offset) {
  return __vmaxu2(pairs, __shfl_xor_sync(0xffffffffu, pairs, offset));
}

/// There and back with the scale of a group, two elements at a time.
struct Mx {
  float factor, inverse;
  __device__ Mx(uint32_t amax, float) {
    const int exponent = scale_exponent(__uint_as_float(amax), kMaxE4M3, 0);
    factor = power_of_two(exponent);
    inverse = decode_ue8m0(mx_scale_code(exponent));
  }
  // By the instructions whose codes and values are those of fp8_math.h.
  __device__ void pass(float& x, float& y) const {
    const uint32_t codes = fp8_pair<DType::kF8E4M3>(x * factor, y * factor);
    const float2 values =
        __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3)));
    x = values.x * inverse;
    y = values.y * inverse;
  }
};
struct Nv {
  float factor, inverse, tensor_inverse;
  __device__ Nv(uint32_t amax, float tensor) : tensor_inverse(1.0f / tensor) {
    const uint32_t code = nv_block_code(__uint_as_float(amax), tensor);
    factor = nv_multiplier(code, tensor);
    inverse = decode_e4m3(code);
  }
  __device__ void pass(float& x, float& y) const {
    for (float* v : {&x, &y}) *v = decode_e2m1(encode_e2m1(*v * factor)) * inverse * tensor_inverse;
  }
};

template <class Group>
__device__ constexpr int lanes_of = std::is_same_v<Group, Mx> ? 4 : 2;  // of eight elements each

template <class Group, bool kAlongRows>
__global__ void __launch_bounds__(kThreads) fake_quantize_kernel(FakeQuantizeArgs a) {
  const int64_t across = (a.cols + kColumns - 1) / kColumns;
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kThreads / 32) + threadIdx.x / 32, slab = warp / across;
  const int lane = threadIdx.x % 32;
  const int64_t row = slab * kRows + lane / 8 * 8, column = (warp - slab * across) * kColumns + lane % 8 * 8;
  if (slab * kRows >= a.rows) return;  // the whole warp
  const int64_t counted = counted_rows(a.rows, a.row_count);
  const bool inside = column < a.cols;
  Vec8<Bf16> raw[8];
#pragma unroll
  for (int r = 0; r < 8; ++r)
    raw[r] = inside && row + r < counted ? load8(static_cast<const Bf16*>(a.x) + (row + r) * a.cols + column)
                                         : zero8<Bf16>();
  const float tensor = std::is_same_v<Group, Nv> ? nv_tensor_scale(*a.amax) : 1.0f;
  Bf16* y = static_cast<Bf16*>(a.y) + row * a.cols + column;
  const auto store = [&](int r, const float(&e)[8]) {
    if (inside && row + r < a.rows) store8(y + r * a.cols, e);
  };
  if constexpr (kAlongRows) {
    uint32_t pairs[4] = {};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const uint32_t words[4] = {raw[r].a.x, raw[r].a.y, raw[r].a.z, raw[r].a.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) pairs[k] = __vmaxu2(pairs[k], words[k] & 0x7fff7fffu);
    }
#pragma unroll
    for (int offset = 8; offset < 8 * lanes_of<Group>; offset *= 2)
#pragma unroll
      for (int k = 0; k < 4; ++k) pairs[k] = lanes_max_pairs(pairs[k], offset);
    float e[8][8];
#pragma unroll
    for (int r = 0; r < 8; ++r) unpack(raw[r], e[r]);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const Group group(k % 2 == 0 ? pairs[k / 2] << 16 : pairs[k / 2] & 0xffff0000u, tensor);
#pragma unroll
      for (int r = 0; r < 8; r += 2) group.pass(e[r][k], e[r + 1][k]);
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) store(r, e[r]);
  } else {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      Amax<Bf16> amax;
      amax.see(raw[r]);
      uint32_t bits = amax.bits();
#pragma unroll
      for (int offset = 1; offset < lanes_of<Group>; offset *= 2) bits = lanes_max(bits, offset);
      const Group group(bits, tensor);
      float e[8];
      unpack(raw[r], e);
#pragma unroll
      for (int k = 0; k < 8; k += 2) group.pass(e[k], e[k + 1]);
      store(r, e);
    }
  }
}

template <class Group>
cudaError_t run(const FakeQuantizeArgs& a, cudaStream_t stream) {
  const int64_t warps = ceil_div(a.rows, kRows) * ceil_div(a.cols, kColumns);
  const dim3 grid(static_cast<unsigned>(ceil_div(warps, kThreads / 32)));
  return start(a.along_rows ? fake_quantize_kernel<Group, true> : fake_quantize_kernel<Group, false>, grid,
               dim3(kThreads), 0, stream, a);
}

}  // namespace

cudaError_t launch(const FakeQuantizeArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.cols % 8 != 0 || !aligned16(args.x) || !aligned16(args.y) || args.x == nullptr || args.y == nullptr ||
      (args.format == FakeFormat::kNv16) != (args.amax != nullptr))
    return cudaErrorInvalidValue;
  return args.format == FakeFormat::kMx32 ? run<Mx>(args, stream) : run<Nv>(args, stream);
}

}  // namespace esm::kernels
