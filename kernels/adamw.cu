#include "kernels/adamw.h"

#include <algorithm>

#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksEach = 5;  // of a multiprocessor; all run at once

// The 16-bit halves of two words of Philox.
struct Random4 {
  uint32_t x, y, z, w;
};
__device__ Random4 halves_of(uint32_t a, uint32_t b) { return {a & 0xffffu, a >> 16, b & 0xffffu, b >> 16}; }

__device__ float4 widen(ushort4 b) {
  return make_float4(widen_bf16(b.x), widen_bf16(b.y), widen_bf16(b.z), widen_bf16(b.w));
}
__device__ ushort4 stochastic(const float4& v, const Random4& r) {
  return make_ushort4(stochastic_bf16(v.x, r.x), stochastic_bf16(v.y, r.y), stochastic_bf16(v.z, r.z),
                      stochastic_bf16(v.w, r.w));
}

// --- master weights --------------------------------------------------------------------------------------------------

template <MasterFormat kFormat>
__device__ float4 load_master(const AdamwArgs& a, int64_t i) {
  if constexpr (kFormat == MasterFormat::kF32) return reinterpret_cast<const float4*>(a.master)[i];
  const ushort4 high = reinterpret_cast<const ushort4*>(a.compute)[i];
  if constexpr (kFormat == MasterFormat::kBF16) return widen(high);
  const ushort4 low = reinterpret_cast<const ushort4*>(a.remainder)[i];
  return make_float4(join_weight(high.x, low.x), join_weight(high.y, low.y), join_weight(high.z, low.z),
                     join_weight(high.w, low.w));
}

template <MasterFormat kFormat>
__device__ void store_master(const AdamwArgs& a, int64_t i, const float4& p, const PhiloxResult& random) {
  ushort4* compute = reinterpret_cast<ushort4*>(a.compute);
  if constexpr (kFormat == MasterFormat::kBF16) {
    compute[i] = stochastic(p, halves_of(random.v[0], random.v[1]));
    return;
  }
  const ushort4 rounded = make_ushort4(weight_bf16(p.x), weight_bf16(p.y), weight_bf16(p.z), weight_bf16(p.w));
  if constexpr (kFormat == MasterFormat::kF32) {
    reinterpret_cast<float4*>(a.master)[i] = p;
    if (compute != nullptr) compute[i] = rounded;
  } else {
    compute[i] = rounded;
    reinterpret_cast<ushort4*>(a.remainder)[i] =
        make_ushort4(weight_remainder(p.x), weight_remainder(p.y), weight_remainder(p.z), weight_remainder(p.w));
  }
}

// --- moments ---------------------------------------------------------------------------------------------------------

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
__device__ uint32_t encode(const float4& v, const Random4& r, uint32_t least, float& scale) {
  scale = e4m3_scale(warp_max(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)))));
  const float inverse = e4m3_inverse(scale);
  return to_e4m3(v.x * inverse, r.x, least) | to_e4m3(v.y * inverse, r.y, least) << 8 |
         to_e4m3(v.z * inverse, r.z, least) << 16 | to_e4m3(v.w * inverse, r.w, least) << 24;
}

__device__ float4 squares(const float4& r) { return make_float4(r.x * r.x, r.y * r.y, r.z * r.z, r.w * r.w); }
__device__ float4 roots(const float4& v) { return make_float4(sqrtf(v.x), sqrtf(v.y), sqrtf(v.z), sqrtf(v.w)); }

template <MomentFormat kFormat>
__device__ void load_moments(const AdamwArgs& a, int64_t i, float4& m, float4& v) {
  if constexpr (kFormat == MomentFormat::kF32) {
    m = static_cast<const float4*>(a.exp_avg)[i];
    v = static_cast<const float4*>(a.exp_avg_sq)[i];
  } else if constexpr (kFormat == MomentFormat::kBF16) {
    m = widen(static_cast<const ushort4*>(a.exp_avg)[i]);
    v = widen(static_cast<const ushort4*>(a.exp_avg_sq)[i]);
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
    return;
  }
  const Random4 m_random = halves_of(random.v[0], random.v[1]), v_random = halves_of(random.v[2], random.v[3]);
  if constexpr (kFormat == MomentFormat::kBF16) {
    static_cast<ushort4*>(a.exp_avg)[i] = stochastic(m, m_random);
    static_cast<ushort4*>(a.exp_avg_sq)[i] = stochastic(v, v_random);
  } else {
    float m_scale, v_scale;
    const uint32_t m_bytes = encode(m, m_random, 0, m_scale);
    const uint32_t v_bytes = encode(roots(v), v_random, 1, v_scale);
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

template <MasterFormat kMaster, MomentFormat kMoments>
__global__ void __launch_bounds__(kThreads, kBlocksEach) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  const AdamwDynamic dynamic = *a.dynamic;
  if (dynamic.skip != 0) return;
  // Per group: decay and step size, in FP64 once a block.
  __shared__ float2 group_values[AdamwArgs::kMaxGroups];
  if (threadIdx.x < AdamwArgs::kMaxGroups) {
    const AdamwArgs::Group g = a.group[threadIdx.x];
    group_values[threadIdx.x] = make_float2(group_decay(dynamic.lr, g.lr_factor, g.weight_decay),
                                            group_step_size(dynamic.step_lr, g.lr_factor));
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
    const AdamwScalars s{.beta1 = a.beta1,
                         .one_minus_beta1 = a.one_minus_beta1,
                         .beta2 = a.beta2,
                         .one_minus_beta2 = a.one_minus_beta2,
                         .eps = a.eps,
                         .grad_scale = dynamic.grad_scale,
                         .inv_sqrt_bias2 = dynamic.inv_sqrt_bias2,
                         .decay = group.x,
                         .step_size = group.y};
    p.x = adamw_update(p.x, g.x, m.x, v.x, s);
    p.y = adamw_update(p.y, g.y, m.y, v.y, s);
    p.z = adamw_update(p.z, g.z, m.z, v.z, s);
    p.w = adamw_update(p.w, g.w, m.w, v.w, s);

    const uint64_t quad = static_cast<uint64_t>(a.random_offset / 4 + i);
    PhiloxResult random{};
    if constexpr (kMoments != MomentFormat::kF32) random = moment_words(a.seed, quad, dynamic.updates);
    if (valid || kMoments == MomentFormat::kE4M3) store_moments<kMoments>(a, i, valid, m, v, random);
    if constexpr (kMaster == MasterFormat::kBF16) random = weight_words(a.seed, quad, dynamic.updates);
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
  switch (a.formats.moments) {
    case MomentFormat::kF32: return run<kMaster, MomentFormat::kF32>(a, stream);
    case MomentFormat::kBF16: return run<kMaster, MomentFormat::kBF16>(a, stream);
    case MomentFormat::kE4M3: return run<kMaster, MomentFormat::kE4M3>(a, stream);
  }
  return cudaErrorInvalidValue;
}

bool complete(const AdamwArgs& a) {
  if (a.exp_avg == nullptr || a.exp_avg_sq == nullptr || a.grad == nullptr || a.dynamic == nullptr) return false;
  if (a.formats.moments == MomentFormat::kE4M3 && (a.exp_avg_scale == nullptr || a.exp_avg_sq_scale == nullptr))
    return false;
  switch (a.formats.master) {
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
    set_bias_correction(d, a.beta1, a.beta2);
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
  switch (args.formats.master) {
    case MasterFormat::kF32: return choose<MasterFormat::kF32>(args, stream);
    case MasterFormat::kBF16Remainder: return choose<MasterFormat::kBF16Remainder>(args, stream);
    case MasterFormat::kBF16: return choose<MasterFormat::kBF16>(args, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace esm::kernels
