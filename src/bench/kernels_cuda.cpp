#include "bench/kernels.h"

#include <algorithm>

#include "base/check.h"
#include "bench/kernel_bench_cuda.h"
#include "bench/median_us_cuda.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/fp8_counts.h"
#include "kernels/gelu.h"
#include "kernels/gelu_fp8.h"
#include "kernels/layer_norm.h"
#include "kernels/layer_norm_fp8.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "kernels/rotary_fp8.h"

namespace esm::bench {
namespace {

int64_t widest(const ModelShape& s) { return std::max(s.ffn, 3 * s.hidden); }

int64_t workspace_bytes(const ModelShape& s) {
  return static_cast<int64_t>(std::max(
      {kernels::layer_norm_backward_workspace(s.tokens, s.hidden, true),
       kernels::gelu_backward_workspace(s.tokens, s.ffn), kernels::gelu_backward_workspace(s.head_rows, s.hidden),
       kernels::column_sum_workspace(s.tokens, widest(s)), kernels::column_sum_workspace(s.tokens, s.hidden),
       kernels::layer_norm_fp8_backward_workspace(s.tokens, s.hidden),
       kernels::gelu_fp8_backward_workspace(s.tokens, s.ffn), kernels::quantize_transpose_workspace(s.tokens, s.ffn),
       kernels::quantize_outer_workspace(s.tokens, s.ffn),
       kernels::rotary_fp8_backward_workspace(s.tokens, s.heads, s.head_dim()),
       kernels::embedding_backward_workspace(s.tokens, s.hidden, s.vocabulary), kernels::cross_entropy_workspace(),
       kernels::sum_of_squares_workspace(), kernels::moments_workspace()}));
}

}  // namespace

KernelBench::KernelBench(const ModelShape& given, std::string filter)
    : shape(given),
      element(static_cast<double>(size_of(given.dtype))),
      workspace("the workspace of the kernels", workspace_bytes(given)),
      filter_(std::move(filter)) {
  const int64_t n = shape.tokens * widest(shape);
  for (device::DeviceBuffer* buffer : {&a, &b, &c, &d})
    *buffer = device::DeviceBuffer("activations of a kernel timing", n * size_of(shape.dtype));
  for (device::DeviceBuffer* buffer : {&sum1, &sum2, &sum3}) *buffer = zeros(64 * 4 * widest(shape));
  const int64_t stats =
      std::max({shape.tokens, shape.head_rows * shape.padded_vocabulary, shape.max_tokens * shape.head_dim() / 2});
  for (device::DeviceBuffer* buffer : {&stats1, &stats2})
    *buffer = values.make("statistics of a kernel timing", DType::kF32, (stats + 7) / 8 * 8, stream.get());
  fill_activations();
}

device::DeviceBuffer KernelBench::zeros(int64_t bytes) const {
  device::DeviceBuffer buffer("a kernel timing", bytes);
  ESM_CUDA(cudaMemsetAsync(buffer.get(), 0, static_cast<size_t>(bytes), stream.get()));
  return buffer;
}

void KernelBench::fill_activations() {
  for (const device::DeviceBuffer* buffer : {&a, &b, &c, &d})
    values.fill(shape.dtype, buffer->bytes() / size_of(shape.dtype), buffer->get(), stream.get());
}

std::string KernelBench::shape_text(int64_t rows, int64_t cols) const {
  return fmt::format("{} {}x{}", shape.dtype == DType::kBF16 ? "bf16" : "fp32", rows, cols);
}

double KernelBench::median_us(const Body& body, int calls) const {
  constexpr int kRounds = 15;
  const device::Graph graph = device::Graph::capture(stream.get(), [&] {
    for (int i = 0; i < calls; ++i) ESM_CUDA(body(stream.get()));
  });
  for (int i = 0; i < 2; ++i) graph.launch(stream.get());
  const device::DeviceBuffer no_flush;  // a step does not flush either
  return bench::median_us(stream.get(), kRounds, no_flush, {[&] { graph.launch(stream.get()); }})[0] / calls;
}

void KernelBench::add(const std::string& name, double bytes, const Body& body) {
  if (name.find(filter_) == std::string::npos) return;
  times_.push_back({.name = name, .us = median_us(body, bytes > 5e8 ? 2 : 8), .bytes = bytes});
}

std::vector<KernelTime> time_kernels(const ModelShape& shape, const std::string& filter) {
  check(shape);
  KernelBench bench(shape, filter);
  time_layer_kernels(bench);
  time_fp8_kernels(bench);
  time_end_kernels(bench);
  time_optimizer_kernels(bench);
  bench.stream.synchronize();
  return bench.take();
}

}  // namespace esm::bench
