// Kernels of both ends of the model: embedding, gathering of scored rows, loss.
#include <algorithm>

#include "bench/kernel_bench_cuda.h"

#include "base/narrow.h"
#include "base/philox.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/rotary.h"
#include "kernels/rows.h"

namespace esm::bench {
namespace {

/// Random proteins with 15 % of their residues scored, as far as the head takes them at once.
struct Pack {
  explicit Pack(const ModelShape& shape) {
    const auto tokens_end = narrow<int32_t>(shape.tokens);
    uint64_t counter = 0;
    const auto below = [&](uint32_t n) {
      return narrow<int32_t>(int64_t{uniform_below(philox(5, RandomStream::kSynthetic, counter++).v[0], n)});
    };
    const int32_t longest = narrow<int32_t>(std::min<int64_t>(600, shape.max_tokens));
    while (cu.back() < tokens_end)
      cu.push_back(std::min(tokens_end, cu.back() + 1 + longest / 20 + below(static_cast<uint32_t>(longest))));
    segments = narrow<int64_t>(cu.size()) - 1;
    is_dummy.resize(static_cast<size_t>(segments));
    for (int32_t t = 0; t < tokens_end; ++t) {
      const bool picked = below(100) < 15 && narrow<int64_t>(scored.size()) < shape.head_rows;
      tokens.push_back(picked && below(10) < 8 ? kernels::EmbeddingFactorsArgs::kMaskToken
                                               : static_cast<uint8_t>(4 + below(20)));
      if (picked) scored.push_back(t);
    }
    count = narrow<int32_t>(scored.size());
    scored.resize(static_cast<size_t>(shape.head_rows));
    for (int64_t i = 0; i < shape.head_rows; ++i) targets.push_back(static_cast<uint8_t>(4 + below(20)));
  }
  std::vector<int32_t> cu{0}, scored;
  std::vector<uint8_t> tokens, is_dummy, targets;
  int64_t segments = 0;
  int32_t count = 0;
};

void embedding(KernelBench& x, const Pack& pack) {
  const int64_t rows = x.shape.tokens, cols = x.shape.hidden;
  const double r = static_cast<double>(rows);
  const device::DeviceBuffer cu = x.upload(pack.cu), tokens = x.upload(pack.tokens), is_dummy = x.upload(pack.is_dummy),
                             positions = x.zeros(4 * rows), factors = x.zeros(4 * rows);
  const std::string sizes = fmt::format("{} tokens, {} segments", rows, pack.segments);
  const kernels::PackGeometryArgs geometry{
      .tokens = rows, .segments = pack.segments, .cu_seqlens = cu.as<int32_t>(), .positions = positions.as<int32_t>()};
  x.add("pack_geometry " + sizes, 4 * r, [=](cudaStream_t stream) { return launch(geometry, stream); });
  const kernels::EmbeddingFactorsArgs factor_args{.segments = pack.segments,
                                                  .cu_seqlens = cu.as<int32_t>(),
                                                  .is_dummy = is_dummy.as<uint8_t>(),
                                                  .tokens = tokens.as<uint8_t>(),
                                                  .factors = factors.as<float>()};
  ESM_CUDA(launch(factor_args, x.stream.get()));
  x.add("embedding_factors " + sizes, 6 * r, [=](cudaStream_t stream) { return launch(factor_args, stream); });
  const double bytes = r * (static_cast<double>(cols) * x.element + 5);
  const kernels::EmbeddingArgs forward{.dtype = x.shape.dtype,
                                       .rows = rows,
                                       .cols = cols,
                                       .tokens = tokens.as<uint8_t>(),
                                       .factors = factors.as<float>(),
                                       .weight = x.a.get(),
                                       .y = x.b.get()};
  x.add("embedding " + x.shape_text(rows, cols), bytes, [=](cudaStream_t stream) { return launch(forward, stream); });
  const kernels::EmbeddingBackwardArgs backward{.dtype = x.shape.dtype,
                                                .rows = rows,
                                                .cols = cols,
                                                .vocabulary = x.shape.vocabulary,
                                                .tokens = tokens.as<uint8_t>(),
                                                .factors = factors.as<float>(),
                                                .dy = x.a.get(),
                                                .dweight = x.sum1.as<float>(),
                                                .workspace = x.workspace.get()};
  x.add("embedding_backward " + x.shape_text(rows, cols), bytes,
        [=](cudaStream_t stream) { return launch(backward, stream); });
}

void head(KernelBench& x, const Pack& pack) {
  const int64_t capacity = x.shape.head_rows, row_bytes = x.shape.hidden * size_of(x.shape.dtype);
  const device::DeviceBuffer rows = x.upload(pack.scored), targets = x.upload(pack.targets),
                             count = x.upload(std::vector<int32_t>{pack.count}),
                             sums = x.zeros(sizeof(kernels::LossSums));
  const std::string sizes = fmt::format("{} of {}", pack.count, x.shape_text(x.shape.tokens, x.shape.hidden));
  const kernels::GatherRowsArgs gather{.capacity = capacity,
                                       .row_bytes = row_bytes,
                                       .rows = rows.as<int32_t>(),
                                       .count = count.as<int32_t>(),
                                       .from = x.a.get(),
                                       .to = x.b.get()};
  x.add("gather_rows " + sizes, static_cast<double>(row_bytes * (pack.count + capacity)),
        [=](cudaStream_t stream) { return launch(gather, stream); });
  const kernels::ScatterRowsArgs scatter{.capacity = capacity,
                                         .total_rows = x.shape.tokens,
                                         .row_bytes = row_bytes,
                                         .rows = rows.as<int32_t>(),
                                         .count = count.as<int32_t>(),
                                         .from = x.a.get(),
                                         .to = x.b.get()};
  x.add("scatter_rows " + sizes, static_cast<double>(row_bytes * (x.shape.tokens + 2 * pack.count)),
        [=](cudaStream_t stream) { return launch(scatter, stream); });
  const kernels::CrossEntropyArgs loss{.dlogits_dtype = x.shape.dtype,
                                       .capacity = capacity,
                                       .classes = narrow<int>(x.shape.vocabulary),
                                       .logits = x.stats1.get(),
                                       .targets = targets.as<uint8_t>(),
                                       .n_scored = count.as<int32_t>(),
                                       .sums = sums.as<kernels::LossSums>(),
                                       .dlogits = x.b.get(),
                                       .dbias = x.sum1.as<float>(),
                                       .workspace = x.workspace.get()};
  x.add("cross_entropy fp32->" + x.shape_text(capacity, x.shape.padded_vocabulary),
        static_cast<double>(capacity * x.shape.padded_vocabulary) * (4 + x.element),
        [=](cudaStream_t stream) { return launch(loss, stream); });
}

}  // namespace

void time_end_kernels(KernelBench& x) {
  const Pack pack(x.shape);
  x.fill_activations();
  embedding(x, pack);
  head(x, pack);
}

}  // namespace esm::bench
