#include "device/gemm_fp8.h"

#include <utility>

#include "base/check.h"
#include "base/narrow.h"

namespace esm::device {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t blocks(int64_t n) { return round_up(n, kBlock) / kBlock; }

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
          .scale_b = b.scale};
}

std::string scale_obstacle(const GemmDesc& g) {
  if (g.scale_a == GemmScale::kNone || g.scale_b == GemmScale::kNone) return "an FP8 operand without a scale";
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
  if (!g.fp8()) return "";
  if (!is_fp8(g.a) || !is_fp8(g.b)) return "one operand in FP8, the other one not";
  if (g.a == DType::kF8E5M2 && g.b == DType::kF8E5M2) return "E5M2 times E5M2, which no tensor core takes";
  if (!g.transpose_a || g.transpose_b) return "an FP8 operand whose k is not contiguous; a transposed copy is needed";
  for (const auto& [name, size] : {std::pair{"k", g.k}, std::pair{"lda", g.lda}, std::pair{"ldb", g.ldb}})
    if (size % 16 != 0) return fmt::format("{} = {} is no multiple of 16", name, size);
  if (g.d != DType::kBF16 && g.d != DType::kF32) return "the result of FP8 operands is BF16 or FP32";
  if (g.ldd * size_of(g.d) % 16 != 0)
    return fmt::format("ldd = {}: columns of the result do not start at multiples of 16 bytes", g.ldd);
  if (g.alignment_bytes < 16) return "pointers aligned to less than 16 bytes";
  return scale_obstacle(g);
}

std::string fp8_device_obstacle(const GemmDesc& g, int capability) {
  if (!g.fp8()) return "";
  const std::string device = fmt::format("compute capability {}.{}", capability / 10, capability % 10);
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
