// The CPU twin of kernels/adamw.h on raw pointers, equal to it bit for bit. No torch and no threads, so that the kernel
// tests can use it too.
#pragma once
#include "kernels/adamw_math.h"

namespace esm::ops::cpu {

/// As kernels::AdamwArgs.
struct Adamw {
  kernels::StateFormats formats;
  int64_t n = 0;
  float* master = nullptr;        // kF32 only
  uint16_t* compute = nullptr;    // BF16 bits; kF32: may be null
  uint16_t* remainder = nullptr;  // kBF16Remainder only
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  float* exp_avg_scale = nullptr;  // kE4M3 only: [ceil(n / 128)]
  float* exp_avg_sq_scale = nullptr;
  const float* grad = nullptr;
  const uint8_t* groups = nullptr;  // [n / 64] group of each 64 elements; null: all 0
  kernels::AdamwScalars scalars[kernels::kMaxGroups] = {};
  uint64_t seed = 0;
  int64_t updates = 0;        // this one included
  int64_t random_offset = 0;  // a multiple of 4
};

/// Updates elements [begin, end); begin is a multiple of kernels::kScaleElements, end too or n.
void adamw(const Adamw& args, int64_t begin, int64_t end);

/// Halves of FP32 weights and back, elements [0, n). remainder null: not wanted; zero.
void split_weights(int64_t n, const float* weights, uint16_t* bf16, uint16_t* remainder);
void join_weights(int64_t n, const uint16_t* bf16, const uint16_t* remainder, float* weights);

}  // namespace esm::ops::cpu
