// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// value = f(seed, stream, index...), so any position can be computed by itself, on any thread, rank or device.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define ESM_HOST_DEVICE __host__ __device__
#else
#define ESM_HOST_DEVICE
#endif

namespace esm {

/// Who draws. Each purpose has its own stream, so that adding a draw to one never moves another.
enum class RandomStream : uint32_t {
  kInit = 1,       // parameter initialisation: (tensor, element)
  kOrder = 2,      // permutation of the samples of an epoch
  kCrop = 3,       // where an over-long sequence is cut: (epoch, sequence)
  kMask = 4,       // masking: (epoch, sequence, position)
  kValidMask = 5,  // masking of validation sets: (set, sequence, position)
  kRounding = 6,   // stochastic rounding
  kSynthetic = 7,  // synthetic data of benchmarks and tests
  kMixture = 8,    // choice among data sets
  kMember = 9,     // choice among the members of a cluster: (epoch, cluster)
};

struct PhiloxResult {
  uint32_t v[4];
};

/// The block function: 128-bit counter, 64-bit key. (Static: files with different target flags must not share one
/// copy.)
ESM_HOST_DEVICE static inline PhiloxResult philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                                      uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0;
    const uint64_t p1 = 0xCD9E8D57ull * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Four 32-bit words at (a, b) of `stream` under `seed`. `a` is 64 bits wide, `b` 32.
ESM_HOST_DEVICE static inline PhiloxResult philox(uint64_t seed, RandomStream stream, uint64_t a, uint32_t b = 0) {
  return philox4x32(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), b, static_cast<uint32_t>(stream),
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// Uniform in [0, 1) with 24 bits, exact in FP32.
ESM_HOST_DEVICE inline float uniform01(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Uniform integer in [0, n) by multiplication (bias below n / 2^32).
ESM_HOST_DEVICE inline uint32_t uniform_below(uint32_t word, uint32_t n) {
  return static_cast<uint32_t>((static_cast<uint64_t>(word) * n) >> 32);
}

/// Two independent standard normal values from two words (Box-Muller in FP64, so equal on every host).
inline std::array<double, 2> normal_pair(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 0.5) * 0x1p-32;
  const double t = 6.283185307179586476925286766559 * (static_cast<double>(b) + 0.5) * 0x1p-32;
  const double r = std::sqrt(-2.0 * std::log(u));
  return {r * std::cos(t), r * std::sin(t)};
}

}  // namespace esm
