// Kernels that write FP8, and those that keep its scales. Bytes as in the headers of the kernels.
#include "bench/kernel_bench_cuda.h"

#include "kernels/fake_quantize.h"
#include "kernels/fp8_counts.h"
#include "kernels/fp8_scales.h"
#include "kernels/gelu_fp8.h"
#include "kernels/layer_norm_fp8.h"
#include "kernels/quantize.h"
#include "kernels/rotary_fp8.h"

namespace esm::bench {
namespace {

/// Two tensors in FP8 as large as the largest activation.
struct Fp8Buffers {
  explicit Fp8Buffers(const KernelBench& x)
      : bytes(x.a.bytes() / size_of(x.shape.dtype)), scale(x.upload(std::vector<float>{16.0f})), amax(x.zeros(4 * 64)) {
    for (device::DeviceBuffer* buffer : {&rows, &transposed, &other}) *buffer = x.zeros(bytes);
  }
  kernels::Fp8Out out(DType dtype, bool with_rows, bool with_transposed) const {
    return {.dtype = dtype,
            .rows = with_rows ? rows.as<uint8_t>() : nullptr,
            .transposed = with_transposed ? transposed.as<uint8_t>() : nullptr,
            .scale = scale.as<float>(),
            .amax = amax.as<float>()};
  }
  kernels::Fp8Out other_transposed() const {
    return {.transposed = other.as<uint8_t>(), .scale = scale.as<float>(), .amax = amax.as<float>() + 32};
  }
  int64_t bytes;
  device::DeviceBuffer rows, transposed, other, scale, amax;
};

void quantize(KernelBench& x, const Fp8Buffers& fp8, int64_t cols) {
  const int64_t rows = x.shape.tokens;
  const double n = static_cast<double>(rows * cols);
  const std::string shape = x.shape_text(rows, cols);
  const kernels::QuantizeArgs one{.dtype = x.shape.dtype,
                                  .rows = rows,
                                  .cols = cols,
                                  .from = x.a.get(),
                                  .to = fp8.out(DType::kF8E4M3, true, false)};
  x.add("quantize e4m3 " + shape, (x.element + 1) * n, [=](cudaStream_t stream) { return launch(one, stream); });
  kernels::QuantizeTransposeArgs both{.dtype = x.shape.dtype};
  both.matrix[0] = {.rows = rows,
                    .cols = cols,
                    .from = x.a.get(),
                    .to = fp8.out(DType::kF8E5M2, true, true),
                    .sum = x.sum1.as<float>(),
                    .workspace = x.workspace.get()};
  x.add("quantize_transpose e5m2 " + shape + " sum", (x.element + 2) * n,
        [=](cudaStream_t stream) { return launch(both, stream); });
  both.matrix[0].sum = nullptr;
  x.add("quantize_transpose e5m2 " + shape, (x.element + 2) * n,
        [=](cudaStream_t stream) { return launch(both, stream); });
  const kernels::AmaxArgs amax{
      .dtype = x.shape.dtype, .rows = rows, .cols = cols, .x = x.a.get(), .amax = fp8.amax.as<float>()};
  x.add("amax " + shape, x.element * n, [=](cudaStream_t stream) { return launch(amax, stream); });
}

void blocks(KernelBench& x, const Fp8Buffers& fp8, int64_t cols) {
  using kernels::BlockScaling;
  const int64_t rows = x.shape.tokens;
  const double n = static_cast<double>(rows * cols);
  struct Mode {
    const char* name;
    BlockScaling scaling;
    double passes;  // readings
  };
  for (const Mode& mode : {Mode{"1x128", BlockScaling::k1x128, 1}, Mode{"128x128", BlockScaling::k128x128, 1},
                           Mode{"outer", BlockScaling::kOuter, 2}}) {
    const kernels::QuantizeBlocksArgs args{.dtype = x.shape.dtype,
                                           .scaling = mode.scaling,
                                           .rows = rows,
                                           .cols = cols,
                                           .from = x.a.get(),
                                           .to_rows = fp8.rows.as<uint8_t>(),
                                           .to_transposed = fp8.transposed.as<uint8_t>(),
                                           .row_inverse = x.c.as<float>(),
                                           .column_inverse = x.d.as<float>(),
                                           .row_stride = (cols + 127) / 128,
                                           .column_stride = (rows + 127) / 128,
                                           .workspace = x.workspace.get()};
    x.add(fmt::format("quantize_blocks {} {}", mode.name, x.shape_text(rows, cols)), (mode.passes * x.element + 2) * n,
          [=](cudaStream_t stream) { return launch(args, stream); });
  }
}

void layer_norm(KernelBench& x, const Fp8Buffers& fp8) {
  const int64_t rows = x.shape.tokens, cols = x.shape.hidden;
  const double n = static_cast<double>(rows * cols), statistics = 8 * static_cast<double>(rows);
  const std::string shape = x.shape_text(rows, cols);
  const kernels::LayerNormFp8Args args{.rows = rows,
                                       .cols = cols,
                                       .x = x.a.get(),
                                       .gamma = x.c.get(),
                                       .beta = x.c.get(),
                                       .y = fp8.out(DType::kF8E4M3, true, false),
                                       .mean = x.stats1.as<float>(),
                                       .rstd = x.stats2.as<float>()};
  x.add("layer_norm_fp8 " + shape, 3 * n + statistics, [=](cudaStream_t stream) { return launch(args, stream); });
  if (cols > kernels::kLayerNormFp8MaxCols) return;
  kernels::LayerNormFp8BackwardArgs back{.rows = rows,
                                         .cols = cols,
                                         .x = x.a.get(),
                                         .gamma = x.c.get(),
                                         .beta = x.c.get(),
                                         .mean = x.stats1.as<float>(),
                                         .rstd = x.stats2.as<float>(),
                                         .dy = x.b.get(),
                                         .residual_gradient = x.d.get(),
                                         .dx = x.d.get(),
                                         .dx8 = fp8.out(DType::kF8E5M2, true, true),
                                         .y8 = fp8.other_transposed(),
                                         .dgamma = x.sum1.as<float>(),
                                         .dbeta = x.sum2.as<float>(),
                                         .dx_sum = x.sum3.as<float>(),
                                         .workspace = x.workspace.get()};
  x.add("layer_norm_fp8_backward " + shape + " residual dx8 dx8^T y8^T", 11 * n + statistics,
        [=](cudaStream_t stream) { return launch(back, stream); });
  back.dx8 = {.dtype = DType::kF8E5M2};
  x.add("layer_norm_fp8_backward " + shape + " residual y8^T", 9 * n + statistics,
        [=](cudaStream_t stream) { return launch(back, stream); });
}

void gelu(KernelBench& x, const Fp8Buffers& fp8) {
  const int64_t rows = x.shape.tokens, cols = x.shape.ffn;
  const kernels::GeluForm form = x.shape.tanh_gelu ? kernels::GeluForm::kTanh : kernels::GeluForm::kErf;
  const double n = static_cast<double>(rows * cols);
  const std::string shape = fmt::format("{} {}", x.shape.tanh_gelu ? "tanh" : "erf", x.shape_text(rows, cols));
  const kernels::GeluFp8Args args{
      .form = form, .rows = rows, .cols = cols, .x = x.a.get(), .y = fp8.out(DType::kF8E4M3, true, false)};
  x.add("gelu_fp8 " + shape, 3 * n, [=](cudaStream_t stream) { return launch(args, stream); });
  const kernels::GeluFp8BackwardArgs back{.form = form,
                                          .rows = rows,
                                          .cols = cols,
                                          .x = x.a.get(),
                                          .dy = x.b.get(),
                                          .dx = fp8.out(DType::kF8E5M2, true, true),
                                          .y = fp8.other_transposed(),
                                          .dx_sum = x.sum1.as<float>(),
                                          .workspace = x.workspace.get()};
  x.add("gelu_fp8_backward " + shape + " dx8 dx8^T y8^T sum", 7 * n,
        [=](cudaStream_t stream) { return launch(back, stream); });
}

void rotary(KernelBench& x, const Fp8Buffers& fp8) {
  if (!kernels::rotary_fp8_supports(x.shape.head_dim())) return;
  std::vector<int32_t> host;
  for (int64_t t = 0; t < x.shape.tokens; ++t) host.push_back(static_cast<int32_t>(t % x.shape.max_tokens));
  const device::DeviceBuffer positions = x.upload(host);
  const double n = 3 * static_cast<double>(x.shape.tokens * x.shape.hidden);
  const std::string shape =
      fmt::format("{} heads of {}", x.shape_text(x.shape.tokens, 3 * x.shape.hidden), x.shape.head_dim());
  kernels::RotaryFp8BackwardArgs args{.tokens = x.shape.tokens,
                                      .heads = x.shape.heads,
                                      .head_dim = x.shape.head_dim(),
                                      .dqkv = x.a.get(),
                                      .positions = positions.as<int32_t>(),
                                      .cos = x.stats1.as<float>(),
                                      .sin = x.stats2.as<float>(),
                                      .to = fp8.out(DType::kF8E5M2, true, true),
                                      .sums = x.sum1.as<float>(),
                                      .workspace = x.workspace.get()};
  x.add("rotary_fp8_backward e5m2 " + shape + " sum", 4 * n, [=](cudaStream_t stream) { return launch(args, stream); });
  args.sums = nullptr;
  x.add("rotary_fp8_backward e5m2 " + shape, 4 * n, [=](cudaStream_t stream) { return launch(args, stream); });
  args.to = fp8.out(DType::kF8E5M2, false, false);
  x.add("rotary_fp8_backward amax only " + shape, 2 * n, [=](cudaStream_t stream) { return launch(args, stream); });
}

// The weights of a layer, BF16 after AdamW, to FP8 in both orders.
void weights(KernelBench& x, const Fp8Buffers& fp8) {
  const int64_t h = x.shape.hidden, f = x.shape.ffn;
  kernels::QuantizeTransposeArgs args{.dtype = DType::kBF16, .n_matrices = 4};
  int64_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const int64_t rows = i == 0 ? 3 * h : i == 2 ? f : h, cols = i == 3 ? f : h;
    kernels::Fp8Out out = fp8.out(DType::kF8E4M3, true, true);
    out.rows += at;
    out.transposed += at;
    args.matrix[i] = {.rows = rows, .cols = cols, .from = x.a.as<uint16_t>() + at, .to = out};
    at += rows * cols;
  }
  if (at > fp8.bytes) return;  // fewer tokens than it takes
  x.add(fmt::format("quantize_transpose e4m3, weights of a layer ({} matrices, {} elements)", 4, at),
        4 * static_cast<double>(at), [=](cudaStream_t stream) { return launch(args, stream); });
}

// What statistics read.
void statistics(KernelBench& x, const Fp8Buffers& fp8, int64_t cols) {
  const int64_t rows = x.shape.tokens;
  const double n = static_cast<double>(rows * cols);
  const device::DeviceBuffer results = x.zeros(64);
  const kernels::Fp8CountsArgs counts{
      .rows = rows, .cols = cols, .x = fp8.rows.as<uint8_t>(), .counts = results.as<uint64_t>()};
  x.add(fmt::format("fp8_counts e4m3 {}x{}", rows, cols), n,
        [=](cudaStream_t stream) { return launch(counts, stream); });
  if (x.shape.dtype != DType::kBF16) return;
  const kernels::MomentsArgs moments{
      .rows = rows, .cols = cols, .x = x.a.get(), .moments = results.as<double>() + 2, .workspace = x.workspace.get()};
  x.add("moments " + x.shape_text(rows, cols), 2 * n, [=](cudaStream_t stream) { return launch(moments, stream); });
}

void fake_quantize(KernelBench& x, int64_t cols) {
  using kernels::GroupFormat;
  const int64_t rows = x.shape.tokens;
  const device::DeviceBuffer amax = x.upload(std::vector<float>{5.0f});
  for (const GroupFormat format : {GroupFormat::kMx32, GroupFormat::kNv16})
    for (const bool along_rows : {false, true}) {
      const bool nv = format == GroupFormat::kNv16;
      const kernels::FakeQuantizeArgs args{.format = format,
                                           .along_rows = along_rows,
                                           .rows = rows,
                                           .cols = cols,
                                           .x = x.a.get(),
                                           .amax = nv ? amax.as<float>() : nullptr,
                                           .y = x.b.get()};
      x.add(fmt::format("fake_quantize {} {} {}", nv ? "nv" : "mx", along_rows ? "along rows" : "along columns",
                        x.shape_text(rows, cols)),
            4 * static_cast<double>(rows * cols), [=](cudaStream_t stream) { return launch(args, stream); });
    }
}

void quantize_groups(KernelBench& x, const Fp8Buffers& fp8, int64_t cols) {
  using kernels::GroupFormat;
  const int64_t rows = x.shape.tokens;
  const device::DeviceBuffer amax = x.upload(std::vector<float>{5.0f});
  for (const GroupFormat format : {GroupFormat::kMx32, GroupFormat::kNv16}) {
    const bool nv = format == GroupFormat::kNv16;
    const kernels::QuantizeGroupsArgs args{.format = format,
                                           .rows = rows,
                                           .cols = cols,
                                           .from = x.a.get(),
                                           .amax = nv ? amax.as<float>() : nullptr,
                                           .to_rows = fp8.rows.as<uint8_t>(),
                                           .to_transposed = fp8.transposed.as<uint8_t>(),
                                           .row_scales = x.c.as<uint8_t>(),
                                           .column_scales = x.d.as<uint8_t>()};
    x.add(fmt::format("quantize_groups {} {}", nv ? "nv" : "mx", x.shape_text(rows, cols)),
          (2 + 2 * (nv ? 0.5 + 1.0 / 16 : 1 + 1.0 / 32)) * static_cast<double>(rows * cols),
          [=](cudaStream_t stream) { return launch(args, stream); });
  }
}

void scales(KernelBench& x) {
  constexpr int64_t kSteps = 1024;
  const int64_t tensors = 12 * x.shape.layers;
  const device::DeviceBuffer history = x.zeros(4 * tensors * kSteps), values = x.zeros(4 * 4 * tensors),
                             counters = x.zeros(64),
                             rules = x.upload(std::vector<kernels::DelayedRule>(static_cast<size_t>(tensors)));
  const kernels::CloseAmaxArgs args{.tables = {.tensors = tensors,
                                               .steps = kSteps,
                                               .history = history.as<float>(),
                                               .pending = values.as<float>(),
                                               .scale = values.as<float>() + tensors,
                                               .inverse = values.as<float>() + 4 * tensors,
                                               .nonfinite = values.as<int32_t>() + 3 * tensors,
                                               .closed = counters.as<int64_t>()},
                                    .rules = rules.as<kernels::DelayedRule>(),
                                    .arrived = counters.as<uint32_t>() + 8};
  x.add(fmt::format("close amax of {} tensors, {} steps", tensors, kSteps), 4.0 * static_cast<double>(tensors * kSteps),
        [=](cudaStream_t stream) { return launch(args, stream); });
}

}  // namespace

void time_fp8_kernels(KernelBench& x) {
  if (x.shape.tokens % kernels::kFp8Multiple != 0 || x.shape.hidden % kernels::kFp8Multiple != 0 ||
      x.shape.ffn % kernels::kFp8Multiple != 0)
    return;  // no FP8 with these sizes
  const Fp8Buffers fp8(x);
  x.fill_activations();
  for (const int64_t cols : {x.shape.hidden, x.shape.ffn}) quantize(x, fp8, cols);
  blocks(x, fp8, x.shape.ffn);
  x.fill_activations();
  if (x.shape.dtype == DType::kBF16) {
    layer_norm(x, fp8);
    x.fill_activations();
    gelu(x, fp8);
    x.fill_activations();
    rotary(x, fp8);
    weights(x, fp8);
    fake_quantize(x, 3 * x.shape.hidden);
    quantize_groups(x, fp8, 3 * x.shape.hidden);
  }
  statistics(x, fp8, 3 * x.shape.hidden);
  scales(x);
}

}  // namespace esm::bench
