// Kernels of an encoder layer: LayerNorm, GELU, rotary, column sums. Bytes as in the headers of the kernels.
#include "bench/kernel_bench_cuda.h"

#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/reduce.h"
#include "kernels/rotary.h"

namespace esm::bench {
namespace {

void layer_norm(KernelBench& x) {
  const int64_t rows = x.shape.tokens, cols = x.shape.hidden;
  const double n = static_cast<double>(rows * cols) * x.element, statistics = 8 * static_cast<double>(rows);
  const std::string shape = x.shape_text(rows, cols);
  const kernels::LayerNormArgs args{.dtype = x.shape.dtype,
                                    .rows = rows,
                                    .cols = cols,
                                    .x = x.a.get(),
                                    .gamma = x.c.get(),
                                    .beta = x.d.get(),
                                    .y = x.b.get(),
                                    .mean = x.stats1.as<float>(),
                                    .rstd = x.stats2.as<float>()};
  x.add("layer_norm " + shape, 2 * n + statistics, [=](cudaStream_t stream) { return launch(args, stream); });
  // b is the gradient and receives y; d is the residual stream's gradient.
  kernels::LayerNormBackwardArgs back{.dtype = x.shape.dtype,
                                      .rows = rows,
                                      .cols = cols,
                                      .x = x.a.get(),
                                      .gamma = x.c.get(),
                                      .beta = x.c.get(),
                                      .mean = x.stats1.as<float>(),
                                      .rstd = x.stats2.as<float>(),
                                      .dy = x.b.get(),
                                      .residual_gradient = x.d.get(),
                                      .dx = x.d.get(),
                                      .y = x.b.get(),
                                      .dgamma = x.sum1.as<float>(),
                                      .dbeta = x.sum2.as<float>(),
                                      .dx_sum = x.sum3.as<float>(),
                                      .workspace = x.workspace.get()};
  const auto add = [&](const char* options, double passes) {
    x.add("layer_norm_backward " + shape + options, passes * n + statistics,
          [=](cudaStream_t stream) { return launch(back, stream); });
  };
  add(" residual y sum", 5);
  back.dx_sum = nullptr;
  add(" residual y", 5);
  back.y = nullptr;
  add(" residual", 4);
}

void gelu(KernelBench& x, kernels::GeluForm form, int64_t rows, int64_t cols) {
  const double n = static_cast<double>(rows * cols) * x.element;
  const std::string shape =
      fmt::format("{} {}", form == kernels::GeluForm::kErf ? "erf" : "tanh", x.shape_text(rows, cols));
  const kernels::GeluArgs args{
      .dtype = x.shape.dtype, .form = form, .rows = rows, .cols = cols, .x = x.a.get(), .y = x.b.get()};
  x.add("gelu " + shape, 2 * n, [=](cudaStream_t stream) { return launch(args, stream); });
  kernels::GeluBackwardArgs back{.dtype = x.shape.dtype,
                                 .form = form,
                                 .rows = rows,
                                 .cols = cols,
                                 .x = x.a.get(),
                                 .dy = x.c.get(),
                                 .dx = x.d.get(),
                                 .y = x.b.get(),
                                 .dx_sum = x.sum1.as<float>(),
                                 .workspace = x.workspace.get()};
  const auto add = [&](const char* options, double passes) {
    x.add("gelu_backward " + shape + options, passes * n, [=](cudaStream_t stream) { return launch(back, stream); });
  };
  add(" y sum", 4);
  back.dx_sum = nullptr;
  add(" y", 4);
  back.y = nullptr;
  add("", 3);
}

void rotary(KernelBench& x) {
  std::vector<int32_t> host;
  for (int64_t t = 0; t < x.shape.tokens; ++t) host.push_back(static_cast<int32_t>(t % x.shape.max_tokens));
  const device::DeviceBuffer positions = x.upload(host);
  const kernels::RotaryArgs args{.dtype = x.shape.dtype,
                                 .tokens = x.shape.tokens,
                                 .heads = x.shape.heads,
                                 .head_dim = x.shape.head_dim(),
                                 .qkv = x.a.get(),
                                 .positions = positions.as<int32_t>(),
                                 .cos = x.stats1.as<float>(),
                                 .sin = x.stats2.as<float>()};
  x.add(fmt::format("rotary {} heads of {}", x.shape_text(x.shape.tokens, 3 * x.shape.hidden), x.shape.head_dim()),
        static_cast<double>(x.shape.tokens * x.shape.hidden) * 4 * x.element,
        [=](cudaStream_t stream) { return launch(args, stream); });
}

void column_sum(KernelBench& x, int64_t cols) {
  const kernels::ColumnSumArgs args{.dtype = x.shape.dtype,
                                    .rows = x.shape.tokens,
                                    .cols = cols,
                                    .x = x.a.get(),
                                    .sum = x.sum1.as<float>(),
                                    .workspace = x.workspace.get()};
  x.add("column_sum " + x.shape_text(x.shape.tokens, cols), static_cast<double>(x.shape.tokens * cols) * x.element,
        [=](cudaStream_t stream) { return launch(args, stream); });
}

}  // namespace

void time_layer_kernels(KernelBench& x) {
  layer_norm(x);
  x.fill_activations();
  gelu(x, x.shape.tanh_gelu ? kernels::GeluForm::kTanh : kernels::GeluForm::kErf, x.shape.tokens, x.shape.ffn);
  x.fill_activations();
  rotary(x);
  column_sum(x, x.shape.hidden);
  column_sum(x, 3 * x.shape.hidden);
  x.fill_activations();
  gelu(x, kernels::GeluForm::kErf, x.shape.head_rows, x.shape.hidden);  // the head's
}

}  // namespace esm::bench
