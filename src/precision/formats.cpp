#include "precision/formats.h"

#include "base/check.h"
#include "kernels/fp8_scale.h"

namespace esm::precision {
namespace {

std::string_view grouping_name(Grouping grouping) {
  switch (grouping) {
    case Grouping::kNone: return "";
    case Grouping::kTensor: return "tensor";
    case Grouping::kOuter: return "row";
    case Grouping::kVector128: return "1x128";
    case Grouping::kBlock128: return "128x128";
    case Grouping::kMx32: return "1x32";
    case Grouping::kNv16: return "1x16 and tensor";
  }
  fail<InternalError>("no such grouping");
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kF32: return "FP32";
    case Format::kBF16: return "BF16";
    case Format::kE4M3: return "E4M3";
    case Format::kE5M2: return "E5M2";
    case Format::kE2M1: return "E2M1";
  }
  fail<InternalError>("no such format");
}

float greatest(Format format) {
  switch (format) {
    case Format::kE4M3: return kernels::kMaxE4M3;
    case Format::kE5M2: return kernels::kMaxE5M2;
    case Format::kE2M1: return kernels::kMaxE2M1;
    case Format::kF32:
    case Format::kBF16: break;
  }
  fail<InternalError>("{} is not scaled", format_name(format));
}

std::string describe(const Operand& operand) {
  if (!operand.quantized()) return std::string(format_name(operand.format));
  return fmt::format("{} ({}{})", format_name(operand.format), grouping_name(operand.grouping),
                     operand.grouping != Grouping::kTensor ? ""
                     : operand.timing == Timing::kDelayed  ? ", delayed"
                                                           : ", current");
}

OperandLayout layout(const Operand& operand, int64_t rows, int64_t k) {
  const int64_t code_bytes = operand.format == Format::kE2M1 ? ceil_div(k, 2) : k;
  switch (operand.grouping) {
    case Grouping::kNone: break;
    case Grouping::kTensor: return {code_bytes, 1, false};
    case Grouping::kOuter: return {code_bytes, rows, false};
    case Grouping::kVector128: return {code_bytes, ceil_div(k, 128) * rows, false};
    case Grouping::kBlock128: return {code_bytes, ceil_div(rows, 128) * ceil_div(ceil_div(k, 128), 4) * 4, false};
    case Grouping::kMx32: return {code_bytes, kernels::group_scale_count(rows, ceil_div(k, 32)), true};
    case Grouping::kNv16: return {code_bytes, kernels::group_scale_count(rows, ceil_div(k, 16)), true};
  }
  fail<InternalError>("{} has no codes", format_name(operand.format));
}

}  // namespace esm::precision
