#include "kernels/adamw.h"

#include <algorithm>

#include "base/philox.h"
#include "kernels/launch.cuh"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksEach = 5;  // of a multiprocessor; all run at once

__device__ float4 to_float4(ushort4 b) {
  return make_float4(
      __uint_as_float(static_cast<uint32_t>(b.x) << 16), __uint_as_float(static_cast<uint32_t>(b.y) << 16),
      __uint_as_float(static_cast<uint32_t>(b.z) << 16), __uint_as_float(static_cast<uint32_t>(b.w) << 16));
}

__device__ uint16_t nearest(float x) { return static_cast<uint16_t>(bf16_pair(x, 0.0f) & 0xffffu); }
__device__ ushort4 nearest(const float4& v) {
  return make_ushort4(nearest(v.x), nearest(v.y), nearest(v.z), nearest(v.w));
}

// Up with the probability of the part that is cut off. Finite values only.
__device__ uint16_t stochastic(float x, uint32_t random16) {
  return static_cast<uint16_t>((__float_as_uint(x) + random16) >> 16);
}
// The 16-bit halves of two words of Philox.
__device__ ushort4 stochastic(const float4& v, uint32_t a, uint32_t b) {
  return make_ushort4(stochastic(v.x, a & 0xffffu), stochastic(v.y, a >> 16), stochastic(v.z, b & 0xffffu),
                      stochastic(v.w, b >> 16));
}

// --- master weights --------------------------------------------------------------------------------------------------

__device__ uint32_t join(uint16_t high, uint16_t low) {
  // The upper half was rounded up when the lower half is at least half a unit.
  return ((static_cast<uint32_t>(high) - (low >> 15)) << 16) | low;
}
__device__ uint16_t upper_half(uint32_t bits) { return static_cast<uint16_t>((bits + 0x8000u) >> 16); }

template <MasterFormat kFormat>
__device__ float4 load_master(const AdamwArgs& a, int64_t i) {
  if constexpr (kFormat == MasterFormat::kF32) return reinterpret_cast<const float4*>(a.master)[i];
  const ushort4 high = reinterpret_cast<const ushort4*>(a.compute)[i];
  if constexpr (kFormat == MasterFormat::kBF16) return to_float4(high);
  const ushort4 low = reinterpret_cast<const ushort4*>(a.remainder)[i];
  return make_float4(__uint_as_float(join(high.x, low.x)), __uint_as_float(join(high.y, low.y)),
                     __uint_as_float(join(high.z, low.z)), __uint_as_float(join(high.w, low.w)));
}

template <MasterFormat kFormat>
__device__ void store_master(const AdamwArgs& a, int64_t i, const float4& p, const PhiloxResult& random) {
  ushort4* compute = reinterpret_cast<ushort4*>(a.compute);
  if constexpr (kFormat == MasterFormat::kF32) {
    reinterpret_cast<float4*>(a.master)[i] = p;
    if (compute != nullptr) compute[i] = nearest(p);
  } else if constexpr (kFormat == MasterFormat::kBF16) {
    compute[i] = stochastic(p, random.v[0], random.v[1]);
  } else {
    const uint32_t x = __float_as_uint(p.x), y = __float_as_uint(p.y), z = __float_as_uint(p.z),
                   w = __float_as_uint(p.w);
    compute[i] = make_ushort4(upper_half(x), upper_half(y), upper_half(z), upper_half(w));
    reinterpret_cast<ushort4*>(a.remainder)[i] = make_ushort4(static_cast<uint16_t>(x), static_cast<uint16_t>(y),
                                                              static_cast<uint16_t>(z), static_cast<uint16_t>(w));
  }
}

// --- moments ---------------------------------------------------------------------------------------------------------

// E4M3 has FP32's layout with another bias: times 2^-120 its values, subnormal ones too, are FP32 values with the last
// 20 bits zero.
__device__ float from_e4m3(uint32_t byte) {
  const float magnitude = __uint_as_float((byte & 0x7fu) << 20) * 0x1p120f;
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}
// |x| <= 448 up to a rounding. `least`: smallest code of a value that is not 0.
__device__ uint32_t to_e4m3(float x, uint32_t random16, uint32_t least) {
  const uint32_t bits = __float_as_uint(fminf(fabsf(x), 448.0f) * 0x1p-120f);
  uint32_t code = (bits + (random16 << 4)) >> 20;
  if (x != 0.0f) code = max(code, least);
  return code | (x < 0.0f ? 0x80u : 0u);
}

__device__ float4 decode(uint32_t bytes, float scale) {
  return make_float4(from_e4m3(bytes & 0xffu) * scale, from_e4m3(bytes >> 8 & 0xffu) * scale,
                     from_e4m3(bytes >> 16 & 0xffu) * scale, from_e4m3(bytes >> 24) * scale);
}

__device__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// All lanes of the warp, whose 128 elements share a scale.
__device__ uint32_t encode(const float4& v, uint32_t a, uint32_t b, uint32_t least, float& scale) {
  const float top = warp_max(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
  // Moments without gradient decay for ever; before the inverse overflows they become 0.
  scale = top > 1e-30f ? top * (1.0f / 448.0f) : 0.0f;
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  return to_e4m3(v.x * inverse, a & 0xffffu, least) | to_e4m3(v.y * inverse, a >> 16, least) << 8 |
         to_e4m3(v.z * inverse, b & 0xffffu, least) << 16 | to_e4m3(v.w * inverse, b >> 16, least) << 24;
}

__device__ float4 squares(const float4& r) { return make_float4(r.x * r.x, r.y * r.y, r.z * r.z, r.w * r.w); }
__device__ float4 roots(const float4& v) { return make_float4(sqrtf(v.x), sqrtf(v.y), sqrtf(v.z), sqrtf(v.w)); }

template <MomentFormat kFormat>
__device__ void load_moments(const AdamwArgs& a, int64_t i, float4& m, float4& v) {
  if constexpr (kFormat == MomentFormat::kF32) {
    m = static_cast<const float4*>(a.exp_avg)[i];
    v = static_cast<const float4*>(a.exp_avg_sq)[i];
  } else if constexpr (kFormat == MomentFormat::kBF16) {
    m = to_float4(static_cast<const ushort4*>(a.exp_avg)[i]);
    v = to_float4(static_cast<const ushort4*>(a.exp_avg_sq)[i]);
  } else {
    m = decode(static_cast<const uint32_t*>(a.exp_avg)[i], a.exp_avg_scale[i / 32]);
    v = squares(decode(static_cast<const uint32_t*>(a.exp_avg_sq)[i], a.exp_avg_sq_scale[i / 32]));
  }
}

// kE4M3: all lanes of the warp, those past the end (not `valid`) with zeros.
template <MomentFormat kFormat>
__device__ void store_moments(const AdamwArgs& a, int64_t i, bool valid, const float4& m, const float4& v,
                              const PhiloxResult& random) {
  if constexpr (kFormat == MomentFormat::kF32) {
    static_cast<float4*>(a.exp_avg)[i] = m;
    static_cast<float4*>(a.exp_avg_sq)[i] = v;
  } else if constexpr (kFormat == MomentFormat::kBF16) {
    static_cast<ushort4*>(a.exp_avg)[i] = stochastic(m, random.v[0], random.v[1]);
    static_cast<ushort4*>(a.exp_avg_sq)[i] = stochastic(v, random.v[2], random.v[3]);
  } else {
    float m_scale, v_scale;
    const uint32_t m_bytes = encode(m, random.v[0], random.v[1], 0, m_scale);
    const uint32_t v_bytes = encode(roots(v), random.v[2], random.v[3], 1, v_scale);
    if (!valid) return;
    static_cast<uint32_t*>(a.exp_avg)[i] = m_bytes;
    static_cast<uint32_t*>(a.exp_avg_sq)[i] = v_bytes;
    if (i % 32 == 0) {
      a.exp_avg_scale[i / 32] = m_scale;
      a.exp_avg_sq_scale[i / 32] = v_scale;
    }
  }
}

// --- update ----------------------------------------------------------------------------------------------------------

struct Scalars {
  float grad_scale, inv_sqrt_bias2, decay, step_size;
};

__device__ float update(float p, float g, float& m, float& v, const AdamwArgs& a, const Scalars& s) {
  g *= s.grad_scale;
  p *= s.decay;
  m = a.beta1 * m + a.one_minus_beta1 * g;
  v = a.beta2 * v + a.one_minus_beta2 * (g * g);
  return p - s.step_size * m / (sqrtf(v) * s.inv_sqrt_bias2 + a.eps);
}

template <MasterFormat kMaster, MomentFormat kMoments>
__global__ void __launch_bounds__(kThreads, kBlocksEach) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  const AdamwDynamic dynamic = *a.dynamic;
  if (dynamic.skip != 0) return;
  // Per group: decay and step size, in FP64 once a block.
  __shared__ float2 group_values[AdamwArgs::kMaxGroups];
  if (threadIdx.x < AdamwArgs::kMaxGroups) {
    const AdamwArgs::Group g = a.group[threadIdx.x];
    group_values[threadIdx.x] = make_float2(static_cast<float>(1.0 - dynamic.lr * g.lr_factor * g.weight_decay),
                                            static_cast<float>(dynamic.step_lr * g.lr_factor));
  }
  __syncthreads();

  const int64_t quads = a.n / 4;
  const int lane = threadIdx.x % 32;
  // Whole warps, because the lanes of one share the scales of one-byte moments.
  for (int64_t first = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x - lane; first < quads;
       first += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t i = first + lane;
    const bool valid = i < quads;
    float4 p{}, m{}, v{}, g{};
    float2 group = group_values[0];
    if (valid) {
      p = load_master<kMaster>(a, i);
      load_moments<kMoments>(a, i, m, v);
      g = __ldcs(reinterpret_cast<const float4*>(a.grad) + i);
      if (a.groups != nullptr) group = group_values[a.groups[i / (AdamwArgs::kGroupElements / 4)]];
    }
    const Scalars s{dynamic.grad_scale, dynamic.inv_sqrt_bias2, group.x, group.y};
    p.x = update(p.x, g.x, m.x, v.x, a, s);
    p.y = update(p.y, g.y, m.y, v.y, a, s);
    p.z = update(p.z, g.z, m.z, v.z, a, s);
    p.w = update(p.w, g.w, m.w, v.w, a, s);

    // Counter: the quad in the model and the update; its highest bit tells moments from weights.
    const uint64_t quad = static_cast<uint64_t>(a.random_offset / 4 + i);
    const uint32_t update_index = static_cast<uint32_t>(dynamic.updates) & 0x7fffffffu;
    PhiloxResult random{};
    if constexpr (kMoments != MomentFormat::kF32) random = philox(a.seed, RandomStream::kRounding, quad, update_index);
    if (valid || kMoments == MomentFormat::kE4M3) store_moments<kMoments>(a, i, valid, m, v, random);
    if constexpr (kMaster == MasterFormat::kBF16)
      random = philox(a.seed, RandomStream::kRounding, quad, update_index | 0x80000000u);
    if (valid) store_master<kMaster>(a, i, p, random);
  }
}

template <MasterFormat kMaster, MomentFormat kMoments>
cudaError_t run(const AdamwArgs& a, cudaStream_t stream) {
  const int64_t blocks = std::min<int64_t>(ceil_div(a.n / 4, kThreads), kBlocksEach * kMultiprocessors);
  return start(adamw_kernel<kMaster, kMoments>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, a);
}

template <MasterFormat kMaster>
cudaError_t choose(const AdamwArgs& a, cudaStream_t stream) {
  switch (a.moment_format) {
    case MomentFormat::kF32: return run<kMaster, MomentFormat::kF32>(a, stream);
    case MomentFormat::kBF16: return run<kMaster, MomentFormat::kBF16>(a, stream);
    case MomentFormat::kE4M3: return run<kMaster, MomentFormat::kE4M3>(a, stream);
  }
  return cudaErrorInvalidValue;
}

bool complete(const AdamwArgs& a) {
  if (a.exp_avg == nullptr || a.exp_avg_sq == nullptr || a.grad == nullptr || a.dynamic == nullptr) return false;
  if (a.moment_format == MomentFormat::kE4M3 && (a.exp_avg_scale == nullptr || a.exp_avg_sq_scale == nullptr))
    return false;
  switch (a.master_format) {
    case MasterFormat::kF32: return a.master != nullptr;
    case MasterFormat::kBF16Remainder: return a.compute != nullptr && a.remainder != nullptr;
    case MasterFormat::kBF16: return a.compute != nullptr;
  }
  return false;
}

__global__ void adamw_prepare_kernel(AdamwPrepareArgs a) {
  AdamwDynamic d = *a.dynamic;
  d.skip = a.clip->skip;
  d.grad_scale = a.clip->grad_scale;
  if (d.skip == 0) {
    ++d.updates;
    d.lr = *a.lr;
    d.step_lr = d.lr / (1.0 - pow(a.beta1, static_cast<double>(d.updates)));
    d.inv_sqrt_bias2 = static_cast<float>(1.0 / sqrt(1.0 - pow(a.beta2, static_cast<double>(d.updates))));
  }
  *a.dynamic = d;
}

}  // namespace

cudaError_t launch(const AdamwPrepareArgs& args, cudaStream_t stream) {
  return start(adamw_prepare_kernel, dim3(1), dim3(1), 0, stream, args);
}

cudaError_t launch(const AdamwArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  if (args.n % AdamwArgs::kGroupElements != 0 || args.random_offset % 4 != 0 || !complete(args))
    return cudaErrorInvalidValue;
  switch (args.master_format) {
    case MasterFormat::kF32: return choose<MasterFormat::kF32>(args, stream);
    case MasterFormat::kBF16Remainder: return choose<MasterFormat::kBF16Remainder>(args, stream);
    case MasterFormat::kBF16: return choose<MasterFormat::kBF16>(args, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace esm::kernels
