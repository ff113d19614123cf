#include "ops/adamw_cpu.h"

#include <algorithm>

namespace esm::ops::cpu {

using namespace kernels;

namespace {

constexpr int64_t kBlock = kScaleElements;

/// Values of a block in FP32. Elements past the end of the buffers are 0.
struct alignas(64) Block {
  float p[kBlock], m[kBlock], v[kBlock], grad[kBlock];
};
struct alignas(64) Random {
  uint32_t first[kBlock], second[kBlock];  // 16 bits each
};

void copy(int64_t count, const float* from, float* to) { memcpy(to, from, static_cast<size_t>(count) * sizeof *to); }

template <auto kWords>
void draw(const Adamw& a, int64_t begin, Random& random) {
  const uint64_t quad = static_cast<uint64_t>((a.random_offset + begin) / 4);
#pragma omp simd
  for (int64_t i = 0; i < kBlock / 4; ++i) {
    const PhiloxResult words = kWords(a.seed, quad + static_cast<uint64_t>(i), a.updates);
    for (int64_t k = 0; k < 4; ++k) {
      random.first[4 * i + k] = words.v[k / 2] >> (16 * (k % 2)) & 0xffffu;
      random.second[4 * i + k] = words.v[2 + k / 2] >> (16 * (k % 2)) & 0xffffu;
    }
  }
}

// --- master weights --------------------------------------------------------------------------------------------------

template <MasterFormat kFormat>
void load_master(const Adamw& a, int64_t begin, int64_t count, float* p) {
  if constexpr (kFormat == MasterFormat::kF32)
    copy(count, a.master + begin, p);
  else
    join_weights(count, a.compute + begin, kFormat == MasterFormat::kBF16 ? nullptr : a.remainder + begin, p);
}

template <MasterFormat kFormat>
void store_master(const Adamw& a, int64_t begin, int64_t count, const float* p) {
  if constexpr (kFormat == MasterFormat::kBF16) {
    Random random;
    draw<weight_words>(a, begin, random);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) a.compute[begin + i] = stochastic_bf16(p[i], random.first[i]);
    return;
  }
  if constexpr (kFormat == MasterFormat::kF32) copy(count, p, a.master + begin);
  if (a.compute != nullptr)
    split_weights(count, p, a.compute + begin, kFormat == MasterFormat::kF32 ? nullptr : a.remainder + begin);
}

// --- moments ---------------------------------------------------------------------------------------------------------

void decode(int64_t count, const uint8_t* codes, float scale, float* values) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] = from_e4m3(codes[i]) * scale;
}

float encode(int64_t count, const float* values, const uint32_t* random, uint32_t least, uint8_t* codes) {
  float top = 0;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < count; ++i) top = std::max(top, std::abs(values[i]));
  const float scale = e4m3_scale(top), inverse = e4m3_inverse(scale);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(to_e4m3(values[i] * inverse, random[i], least));
  return scale;
}

template <MomentFormat kFormat>
void load_moments(const Adamw& a, int64_t begin, int64_t count, Block& b) {
  if constexpr (kFormat == MomentFormat::kF32) {
    copy(count, static_cast<const float*>(a.exp_avg) + begin, b.m);
    copy(count, static_cast<const float*>(a.exp_avg_sq) + begin, b.v);
  } else if constexpr (kFormat == MomentFormat::kBF16) {
    join_weights(count, static_cast<const uint16_t*>(a.exp_avg) + begin, nullptr, b.m);
    join_weights(count, static_cast<const uint16_t*>(a.exp_avg_sq) + begin, nullptr, b.v);
  } else {
    decode(count, static_cast<const uint8_t*>(a.exp_avg) + begin, a.exp_avg_scale[begin / kBlock], b.m);
    decode(count, static_cast<const uint8_t*>(a.exp_avg_sq) + begin, a.exp_avg_sq_scale[begin / kBlock], b.v);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) b.v[i] *= b.v[i];
  }
}

template <MomentFormat kFormat>
void store_moments(const Adamw& a, int64_t begin, int64_t count, Block& b) {
  if constexpr (kFormat == MomentFormat::kF32) {
    copy(count, b.m, static_cast<float*>(a.exp_avg) + begin);
    copy(count, b.v, static_cast<float*>(a.exp_avg_sq) + begin);
    return;
  }
  Random random;
  draw<moment_words>(a, begin, random);
  if constexpr (kFormat == MomentFormat::kBF16) {
    uint16_t* m = static_cast<uint16_t*>(a.exp_avg) + begin;
    uint16_t* v = static_cast<uint16_t*>(a.exp_avg_sq) + begin;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      m[i] = stochastic_bf16(b.m[i], random.first[i]);
      v[i] = stochastic_bf16(b.v[i], random.second[i]);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) b.v[i] = sqrtf(b.v[i]);
    a.exp_avg_scale[begin / kBlock] = encode(count, b.m, random.first, 0, static_cast<uint8_t*>(a.exp_avg) + begin);
    a.exp_avg_sq_scale[begin / kBlock] =
        encode(count, b.v, random.second, 1, static_cast<uint8_t*>(a.exp_avg_sq) + begin);
  }
}

template <MasterFormat kMaster, MomentFormat kMoments>
void run(const Adamw& a, int64_t first, int64_t end) {
  for (int64_t begin = first; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    Block b;
    load_master<kMaster>(a, begin, count, b.p);
    load_moments<kMoments>(a, begin, count, b);
    copy(count, a.grad + begin, b.grad);
    for (int64_t part = 0; part < count; part += kGroupElements) {
      const AdamwScalars s = a.scalars[a.groups == nullptr ? 0 : a.groups[(begin + part) / kGroupElements]];
      const int64_t part_end = std::min(part + kGroupElements, count);
#pragma omp simd
      for (int64_t i = part; i < part_end; ++i) b.p[i] = adamw_update(b.p[i], b.grad[i], b.m[i], b.v[i], s);
    }
    store_master<kMaster>(a, begin, count, b.p);
    store_moments<kMoments>(a, begin, count, b);
  }
}

template <MasterFormat kMaster>
void choose(const Adamw& a, int64_t begin, int64_t end) {
  switch (a.formats.moments) {
    case MomentFormat::kF32: return run<kMaster, MomentFormat::kF32>(a, begin, end);
    case MomentFormat::kBF16: return run<kMaster, MomentFormat::kBF16>(a, begin, end);
    case MomentFormat::kE4M3: return run<kMaster, MomentFormat::kE4M3>(a, begin, end);
  }
}

}  // namespace

void split_weights(int64_t n, const float* weights, uint16_t* bf16, uint16_t* remainder) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) bf16[i] = weight_bf16(weights[i]);
  if (remainder == nullptr) return;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) remainder[i] = weight_remainder(weights[i]);
}

void join_weights(int64_t n, const uint16_t* bf16, const uint16_t* remainder, float* weights) {
  if (remainder == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) weights[i] = widen_bf16(bf16[i]);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) weights[i] = join_weight(bf16[i], remainder[i]);
}

void adamw(const Adamw& args, int64_t begin, int64_t end) {
  switch (args.formats.master) {
    case MasterFormat::kF32: return choose<MasterFormat::kF32>(args, begin, end);
    case MasterFormat::kBF16Remainder: return choose<MasterFormat::kBF16Remainder>(args, begin, end);
    case MasterFormat::kBF16: return choose<MasterFormat::kBF16>(args, begin, end);
  }
}

}  // namespace esm::ops::cpu
