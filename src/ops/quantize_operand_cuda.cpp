#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/fake_quantize.h"
#include "kernels/fp8_scales.h"
#include "kernels/quantize.h"
#include "kernels/quantize_groups.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {
namespace {

using precision::Grouping;

void by_tensor(const Context& context, const GemmOperand& x) {
  const int64_t rows = x.values.size(0), cols = x.values.size(1);
  const int32_t* counted = pointer<int32_t>(x.counted);
  const auto to = [&](const kernels::Fp8Out& out) {
    if (out.transposed == nullptr && out.rows == nullptr) {
      ESM_CUDA(kernels::launch(kernels::AmaxArgs{.dtype = dtype_of(x.values),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .x = raw(x.values),
                                                 .row_count = counted,
                                                 .amax = out.amax},
                               context.stream()));
    } else if (out.transposed == nullptr) {
      ESM_CUDA(kernels::launch(kernels::QuantizeArgs{.dtype = dtype_of(x.values),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .from = raw(x.values),
                                                     .row_count = counted,
                                                     .to = out},
                               context.stream()));
    } else {
      kernels::QuantizeTransposeArgs args{.dtype = dtype_of(x.values), .row_count = counted};
      args.matrix[0] = {.rows = rows, .cols = cols, .from = raw(x.values), .to = out};
      ESM_CUDA(kernels::launch(args, context.stream()));
    }
  };
  write_fp8(context, x, to);
}

kernels::BlockScaling scaling_of(Grouping grouping) {
  switch (grouping) {
    case Grouping::kVector128: return kernels::BlockScaling::k1x128;
    case Grouping::kBlock128: return kernels::BlockScaling::k128x128;
    case Grouping::kOuter: return kernels::BlockScaling::kOuter;
    case Grouping::kNone:
    case Grouping::kTensor:
    case Grouping::kMx32:
    case Grouping::kNv16: break;
  }
  fail<InternalError>("no kernel makes codes of {}", precision::describe({.grouping = grouping}));
}

/// Scales of a row of 128 x 128 blocks, with their padding.
int64_t block_stride(int64_t k) { return ((k + 127) / 128 + 3) / 4 * 4; }

void by_groups(Workspace& ws, const GemmOperand& x) {
  const int64_t rows = x.values.size(0), cols = x.values.size(1);
  const bool outer = x.format.grouping == Grouping::kOuter;
  ESM_CUDA(kernels::launch(
      kernels::QuantizeBlocksArgs{
          .dtype = dtype_of(x.values),
          .scaling = scaling_of(x.format.grouping),
          .rows = rows,
          .cols = cols,
          .from = raw(x.values),
          .row_count = pointer<int32_t>(x.counted),
          .to_dtype = fp8_type(x.format.format),
          .to_rows = pointer<uint8_t>(x.codes),
          .to_transposed = pointer<uint8_t>(x.codes_t),
          .row_inverse = pointer<float>(x.inverses),
          .column_inverse = pointer<float>(x.inverses_t),
          .row_stride = block_stride(cols),
          .column_stride = block_stride(rows),
          .workspace =
              outer ? ws.scratch(Workspace::kPartials, kernels::quantize_outer_workspace(rows, cols)) : nullptr},
      ws.context().stream()));
}

bool small_groups(const GemmOperand& x) {
  return x.format.grouping == Grouping::kMx32 || x.format.grouping == Grouping::kNv16;
}
kernels::GroupFormat group_format(const GemmOperand& x) {
  return x.format.grouping == Grouping::kNv16 ? kernels::GroupFormat::kNv16 : kernels::GroupFormat::kMx32;
}

/// Of the whole tensor where the scale of it goes by that; else null.
const float* measured_amax(const Context& context, const GemmOperand& x) {
  if (x.format.grouping != Grouping::kNv16) return nullptr;
  if (x.scale.measure)
    ESM_CUDA(kernels::launch(kernels::AmaxArgs{.dtype = dtype_of(x.values),
                                               .rows = x.values.size(0),
                                               .cols = x.values.size(1),
                                               .x = raw(x.values),
                                               .row_count = pointer<int32_t>(x.counted),
                                               .amax = pointer<float>(x.scale.amax)},
                             context.stream()));
  return pointer<float>(x.scale.amax);
}

void by_small_groups(const Context& context, const GemmOperand& x) {
  const bool nv = x.format.grouping == Grouping::kNv16;
  ESM_CUDA(
      kernels::launch(kernels::QuantizeGroupsArgs{.format = group_format(x),
                                                  .rows = x.values.size(0),
                                                  .cols = x.values.size(1),
                                                  .from = raw(x.values),
                                                  .row_count = pointer<int32_t>(x.counted),
                                                  .amax = measured_amax(context, x),
                                                  .to_rows = pointer<uint8_t>(x.codes),
                                                  .to_transposed = pointer<uint8_t>(x.codes_t),
                                                  .row_scales = pointer<uint8_t>(x.inverses),
                                                  .column_scales = pointer<uint8_t>(x.inverses_t),
                                                  .tensor_inverse = nv ? pointer<float>(x.scale.inverse) : nullptr},
                      context.stream()));
}

/// Formats that the device does not multiply: values as products are to see them.
void emulate(const Context& context, const GemmOperand& x) {
  const int64_t rows = x.values.size(0), cols = x.values.size(1);
  ESM_CHECK(small_groups(x), "no kernel emulates {}", precision::describe(x.format));
  const float* amax = measured_amax(context, x);
  for (const bool along_rows : {false, true}) {
    const at::Tensor& to = along_rows ? x.codes_t : x.codes;
    if (!to.defined()) continue;
    ESM_CUDA(kernels::launch(kernels::FakeQuantizeArgs{.format = group_format(x),
                                                       .along_rows = along_rows,
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .x = raw(x.values),
                                                       .row_count = pointer<int32_t>(x.counted),
                                                       .amax = amax,
                                                       .y = raw(to)},
                             context.stream()));
  }
}

}  // namespace

void quantize_operand(Workspace& ws, const GemmOperand& x) {
  const device::Phase phase(ws.context(), "quantize");
  if (x.emulated) return emulate(ws.context(), x);
  if (x.format.grouping == Grouping::kTensor) return by_tensor(ws.context(), x);
  if (small_groups(x)) return by_small_groups(ws.context(), x);
  by_groups(ws, x);
}

int64_t quantize_floats(const QuantizeSizes& s) {
  if (s.format.grouping == Grouping::kNv16) return kProductFactors;
  return s.format.grouping == Grouping::kOuter ? floats_of(kernels::quantize_outer_workspace(s.rows, s.cols)) : 0;
}

void measured_scale(const Context& context, const TensorScale& s) {
  ESM_CUDA(kernels::launch(kernels::MeasuredScaleArgs{.n = 1,
                                                      .amax = pointer<float>(s.amax),
                                                      .greatest = s.greatest,
                                                      .margin = s.margin,
                                                      .scale = pointer<float>(s.scale),
                                                      .inverse = pointer<float>(s.inverse)},
                           context.stream()));
}

void close_amax(const Context& context, const kernels::AmaxTables& tables, const at::Tensor& rules,
                const at::Tensor& arrived) {
  ESM_CUDA(kernels::launch(kernels::CloseAmaxArgs{.tables = tables,
                                                  .rules = static_cast<const kernels::DelayedRule*>(raw(rules)),
                                                  .arrived = reinterpret_cast<uint32_t*>(pointer<int32_t>(arrived))},
                           context.stream()));
}

}  // namespace esm::ops::cuda
