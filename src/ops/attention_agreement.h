// Does attention compute right on this machine? For `esmtrain doctor`: a small pack with lengths around the borders of
// tiles, every implementation against FP64 on the host. (The tests look at more sizes, at leaks and at determinism.)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace esm::ops {

/// One implementation at one size. Distances are L2, relative; the gradient's is that of the worst of dQ, dK and dV.
struct AttentionAgreement {
  std::string name;     // "cudnn bf16, heads of 64"
  std::string refusal;  // why it is not for this machine: "does not run on sm_80"; empty: it is
  std::string failure;  // the error that stopped it; empty: none
  double out = 0, gradient = 0;
  double out_bound = 0, gradient_bound = 0;
  /// False for NaN.
  bool ok() const { return failure.empty() && (!refusal.empty() || (out <= out_bound && gradient <= gradient_bound)); }
};

/// What the CPU kernels (ops/cpu_kernels.h) find here. They need AVX2 and FMA.
struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool avx512 = false;  // attention then uses it
};
CpuFeatures cpu_features();

/// The CPU's attention in each instruction set that this machine has, FP32 and BF16. Tenths of a second. Needs AVX2.
std::vector<AttentionAgreement> check_cpu_attention(uint64_t seed);

/// The backends of CUDA device `index`: heads of 16, 24, 32, 64 and 128 in BF16, simple also in FP32. A second or two.
/// None in a build without CUDA.
std::vector<AttentionAgreement> check_cuda_attention(int index, uint64_t seed);

}  // namespace esm::ops
