#include "device/gemm_desc.h"

#include <functional>

#include "base/check.h"
#include "device/gemm_fp8.h"

namespace esm::device {
namespace {

std::string_view epilogue_name(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kNone: return "none";
    case GemmEpilogue::kBias: return "bias";
  }
  return "";
}

void check_operands(const GemmDesc& desc, const std::string& what) {
  if (desc.in_codes()) {
    const std::string obstacle = fp8_obstacle(desc);
    ESM_CHECK(obstacle.empty(), "{}: {}", obstacle, what);
    return;
  }
  ESM_CHECK(desc.a == desc.b && (desc.a == DType::kF32 || desc.a == DType::kBF16), "operands are FP32 or BF16: {}",
            what);
  ESM_CHECK(desc.d == DType::kF32 || (desc.d == DType::kBF16 && desc.a == DType::kBF16),
            "the result is FP32, or BF16 from BF16: {}", what);
  ESM_CHECK(desc.scale_a == GemmScale::kNone && desc.scale_b == GemmScale::kNone && !desc.fast_accumulation,
            "scales and fast accumulation are for codes: {}", what);
}

}  // namespace

std::string_view scale_name(GemmScale scale) {
  switch (scale) {
    case GemmScale::kNone: return "none";
    case GemmScale::kTensor: return "tensor";
    case GemmScale::kOuterVector: return "outer";
    case GemmScale::kVector128: return "vector128";
    case GemmScale::kBlock128: return "block128";
    case GemmScale::kMx32: return "mx32";
    case GemmScale::kNv16: return "nv16";
  }
  return "";
}

size_t GemmDescHash::operator()(const GemmDesc& desc) const noexcept {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  const auto mix = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  };
  for (const int64_t value : {desc.m, desc.n, desc.k, desc.lda, desc.ldb, desc.ldd, desc.alignment_bytes}) mix(value);
  mix(static_cast<int64_t>(desc.a) | static_cast<int64_t>(desc.d) << 8 | static_cast<int64_t>(desc.epilogue) << 16 |
      static_cast<int64_t>(desc.transpose_a) << 24 | static_cast<int64_t>(desc.transpose_b) << 25 |
      static_cast<int64_t>(desc.accumulate) << 26 | static_cast<int64_t>(desc.fast_accumulation) << 27 |
      static_cast<int64_t>(desc.device_factors) << 28 | static_cast<int64_t>(desc.b) << 32 |
      static_cast<int64_t>(desc.scale_a) << 40 | static_cast<int64_t>(desc.scale_b) << 48);
  return static_cast<size_t>(hash);
}

void check(const GemmDesc& desc) {
  const std::string what = text(desc);
  ESM_CHECK(desc.m > 0 && desc.n > 0 && desc.k > 0, "empty product: {}", what);
  ESM_CHECK(desc.lda >= (desc.transpose_a ? desc.k : desc.m), "columns of A overlap: {}", what);
  ESM_CHECK(desc.ldb >= (desc.transpose_b ? desc.n : desc.k), "columns of B overlap: {}", what);
  ESM_CHECK(desc.ldd >= desc.m, "columns of D overlap: {}", what);
  check_operands(desc, what);
  const int64_t align = desc.alignment_bytes;
  ESM_CHECK(align >= size_of(desc.a) && align >= size_of(desc.d) && (align & (align - 1)) == 0,
            "the alignment is a power of two of at least one element: {}", what);
}

std::string text(const GemmDesc& desc) {
  std::string in(dtype_name(desc.a)), more;
  if (desc.in_codes()) {
    in += fmt::format("/{}", dtype_name(desc.b));
    more = fmt::format(" scale={}/{} sums={}", scale_name(desc.scale_a), scale_name(desc.scale_b),
                       desc.fast_accumulation ? "fast" : "split");
  }
  if (desc.device_factors) more += " factors=device";
  return fmt::format("m={} n={} k={} lda={} ldb={} ldd={} op={}{} in={} out={} epilogue={} beta={} align={}{}", desc.m,
                     desc.n, desc.k, desc.lda, desc.ldb, desc.ldd, desc.transpose_a ? 'T' : 'N',
                     desc.transpose_b ? 'T' : 'N', in, dtype_name(desc.d), epilogue_name(desc.epilogue),
                     desc.accumulate ? 1 : 0, desc.alignment_bytes, more);
}

GemmDesc LinearForwardGemm::desc() const {
  return {.m = out,
          .n = tokens,
          .k = in,
          .lda = in,
          .ldb = in,
          .ldd = out,
          .transpose_a = true,
          .a = operands,
          .b = operands,
          .d = y,
          .epilogue = bias ? GemmEpilogue::kBias : GemmEpilogue::kNone,
          .accumulate = residual};
}

GemmDesc LinearDgradGemm::desc() const {
  return {.m = in, .n = tokens, .k = out, .lda = in, .ldb = out, .ldd = in, .a = operands, .b = operands, .d = dx};
}

GemmDesc LinearWgradGemm::desc() const {
  return {.m = in,
          .n = out,
          .k = tokens,
          .lda = in,
          .ldb = out,
          .ldd = in,
          .transpose_b = true,
          .a = operands,
          .b = operands,
          .d = dweight,
          .accumulate = accumulate};
}

}  // namespace esm::device
