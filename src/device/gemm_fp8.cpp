#include "device/gemm_fp8.h"

#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/fp8_scale.h"

namespace esm::device {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t blocks(int64_t n) { return round_up(n, kBlock) / kBlock; }

/// Elements along k that share a factor of a small group; 0: other scales.
constexpr int64_t group_size(GemmScale scale) {
  return scale == GemmScale::kMx32 ? 32 : scale == GemmScale::kNv16 ? 16 : 0;
}

constexpr int64_t groups(GemmScale scale, int64_t k) { return (k + group_size(scale) - 1) / group_size(scale); }

constexpr bool is_block(GemmScale scale) { return scale == GemmScale::kVector128 || scale == GemmScale::kBlock128; }

GemmDesc k_contiguous(int64_t m, int64_t n, int64_t k, const Fp8Operand& a, const Fp8Operand& b) {
  return {.m = m,
          .n = n,
          .k = k,
          .lda = k,
          .ldb = k,
          .ldd = m,
          .transpose_a = true,
          .a = a.dtype,
          .b = b.dtype,
          .scale_a = a.scale,
          .scale_b = b.scale,
          .device_factors = a.scale == GemmScale::kNv16};
}

/// Both operands have groups of the same kind, or neither has.
std::string group_obstacle(const GemmDesc& g) {
  if (g.scale_a != g.scale_b) return "scales of small groups go with the same on the other side";
  const DType codes = g.scale_a == GemmScale::kNv16 ? DType::kF4E2M1x2 : DType::kF8E4M3;
  if (g.a != codes || g.b != codes)
    return fmt::format("scales of {} are for {}", scale_name(g.scale_a), dtype_name(codes));
  for (const auto& [name, size] : {std::pair{"k", g.k}, std::pair{"lda", g.lda}, std::pair{"ldb", g.ldb}})
    if (size % 32 != 0)
      return fmt::format("{} = {} is no multiple of 32, as scales of small groups need it", name, size);
  if (g.fast_accumulation) return "scales of small groups take no fast accumulation";
  if (g.scale_a == GemmScale::kNv16 && !g.device_factors) return "FP4 without the scale of its tensors";
  return "";
}

std::string scale_obstacle(const GemmDesc& g) {
  if (g.scale_a == GemmScale::kNone || g.scale_b == GemmScale::kNone) return "an operand in codes without a scale";
  if (group_size(g.scale_a) != 0 || group_size(g.scale_b) != 0) return group_obstacle(g);
  if (!is_fp8(g.a) || !is_fp8(g.b)) return "FP4 without scales of 16 elements";
  if (!is_block(g.scale_a) && !is_block(g.scale_b))
    return g.scale_a == g.scale_b ? "" : "one scale a row goes with one scale a column, and one a tensor with another";
  if (!is_block(g.scale_a) || !is_block(g.scale_b)) return "scales in blocks of 128 go with such scales only";
  if (g.scale_a == GemmScale::kBlock128 && g.scale_b == GemmScale::kBlock128)
    return "blocks of 128 x 128 on both sides; one side may have them";
  if (g.k % kBlock != 0) return fmt::format("k = {} is no multiple of 128, as scales in blocks need it", g.k);
  for (const auto& [name, size] : {std::pair{'m', g.m}, std::pair{'n', g.n}})
    if (size % 4 != 0) return fmt::format("{} = {} is no multiple of 4, as scales in blocks need it", name, size);
  if (g.fast_accumulation) return "scales in blocks take no fast accumulation: every block of a sum is scaled in FP32";
  return "";
}

}  // namespace

std::string fp8_obstacle(const GemmDesc& g) {
  if (!g.in_codes()) return "";
  if (!is_code(g.a) || !is_code(g.b)) return "one operand in codes, the other one not";
  if (g.a == DType::kF8E5M2 && g.b == DType::kF8E5M2) return "E5M2 times E5M2, which no tensor core takes";
  if (!g.transpose_a || g.transpose_b)
    return "an operand in codes whose k is not contiguous; a transposed copy is needed";
  for (const auto& [name, size] : {std::pair{"k", g.k}, std::pair{"lda", g.lda}, std::pair{"ldb", g.ldb}})
    if (size % 16 != 0) return fmt::format("{} = {} is no multiple of 16", name, size);
  if (g.d != DType::kBF16 && g.d != DType::kF32) return "the result of codes is BF16 or FP32";
  if (g.ldd * size_of(g.d) % 16 != 0)
    return fmt::format("ldd = {}: columns of the result do not start at multiples of 16 bytes", g.ldd);
  if (g.alignment_bytes < 16) return "pointers aligned to less than 16 bytes";
  return scale_obstacle(g);
}

std::string fp8_device_obstacle(const GemmDesc& g, int capability) {
  if (!g.in_codes()) return "";
  const std::string device = fmt::format("compute capability {}.{}", capability / 10, capability % 10);
  if (group_size(g.scale_a) != 0)
    return capability >= kLeastMxCapability ? "" : device + " has no tensor cores for scales of small groups";
  if (capability < kLeastFp8Capability) return device + " has no FP8 tensor cores";
  if ((g.scale_a != GemmScale::kTensor || g.scale_b != GemmScale::kTensor) && capability != 90)
    return device + " takes one scale a tensor only";
  return "";
}

int64_t scale_count(GemmScale scale, int64_t rows, int64_t k) {
  switch (scale) {
    case GemmScale::kNone: return 0;
    case GemmScale::kTensor: return 1;
    case GemmScale::kOuterVector: return rows;
    case GemmScale::kVector128: return rows * blocks(k);
    case GemmScale::kBlock128: return blocks(rows) * round_up<int64_t>(blocks(k), 4);
    case GemmScale::kMx32:
    case GemmScale::kNv16: return kernels::group_scale_count(rows, groups(scale, k));
  }
  return 0;
}

int64_t scale_index(GemmScale scale, int64_t rows, int64_t k, int64_t row, int64_t i) {
  switch (scale) {
    case GemmScale::kNone:
    case GemmScale::kTensor: return 0;
    case GemmScale::kOuterVector: return row;
    case GemmScale::kVector128: return i / kBlock * rows + row;
    case GemmScale::kBlock128: return row / kBlock * round_up<int64_t>(blocks(k), 4) + i / kBlock;
    case GemmScale::kMx32:
    case GemmScale::kNv16: return kernels::group_scale_index(row, i / group_size(scale), groups(scale, k));
  }
  return 0;
}

GemmDesc Fp8ForwardGemm::desc() const {
  GemmDesc g = k_contiguous(out, tokens, in, weight, x);
  g.fast_accumulation = fast_accumulation;
  g.d = y;
  g.epilogue = bias ? GemmEpilogue::kBias : GemmEpilogue::kNone;
  g.accumulate = residual;
  return g;
}

GemmDesc Fp8DgradGemm::desc() const {
  GemmDesc g = k_contiguous(in, tokens, out, weight_t, dy);
  g.fast_accumulation = fast_accumulation;
  g.d = dx;
  return g;
}

GemmDesc Fp8WgradGemm::desc() const {
  GemmDesc g = k_contiguous(in, out, tokens, x_t, dy_t);
  g.fast_accumulation = fast_accumulation;
  g.d = dweight;
  g.accumulate = accumulate;
  return g;
}

}  // namespace esm::device
