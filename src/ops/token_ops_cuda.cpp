// Embedding, rows, cross entropy.
#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/rows.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {

void embedding_factors(const Context& context, const Pack& pack, bool token_dropout, const at::Tensor& factors) {
  const device::Phase phase(context, "embedding");
  ESM_CUDA(kernels::launch(kernels::EmbeddingFactorsArgs{.segments = pack.segments(),
                                                         .cu_seqlens = pointer<int32_t>(pack.cu_seqlens),
                                                         .is_dummy = pointer<uint8_t>(pack.is_dummy),
                                                         .tokens = pointer<uint8_t>(pack.ids),
                                                         .token_dropout = token_dropout,
                                                         .factors = pointer<float>(factors)},
                           context.stream()));
}

void embedding(const Context& context, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& weight,
               const at::Tensor& y) {
  const device::Phase phase(context, "embedding");
  ESM_CUDA(kernels::launch(kernels::EmbeddingArgs{.dtype = dtype_of(y),
                                                  .rows = y.size(0),
                                                  .cols = y.size(1),
                                                  .tokens = pointer<uint8_t>(ids),
                                                  .factors = pointer<float>(factors),
                                                  .weight = raw(weight),
                                                  .y = raw(y)},
                           context.stream()));
}

void embedding_backward(Workspace& ws, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& dy,
                        const at::Tensor& dweight) {
  const device::Phase phase(ws.context(), "embedding backward");
  const int64_t rows = dy.size(0), cols = dy.size(1), vocabulary = dweight.size(0);
  const size_t bytes = kernels::embedding_backward_workspace(rows, cols, vocabulary);
  ESM_CUDA(kernels::launch(kernels::EmbeddingBackwardArgs{.dtype = dtype_of(dy),
                                                          .rows = rows,
                                                          .cols = cols,
                                                          .vocabulary = vocabulary,
                                                          .tokens = pointer<uint8_t>(ids),
                                                          .factors = pointer<float>(factors),
                                                          .dy = raw(dy),
                                                          .dweight = pointer<float>(dweight),
                                                          .workspace = ws.scratch(Workspace::kPartials, bytes)},
                           ws.context().stream()));
}

void gather_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to) {
  const device::Phase phase(context, "scored rows and loss");
  ESM_CUDA(kernels::launch(kernels::GatherRowsArgs{.capacity = rows.index.numel(),
                                                   .row_bytes = from.size(1) * from.element_size(),
                                                   .rows = pointer<int32_t>(rows.index),
                                                   .count = pointer<int32_t>(rows.count),
                                                   .from = raw(from),
                                                   .to = raw(to)},
                           context.stream()));
}

void scatter_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to) {
  const device::Phase phase(context, "scored rows and loss");
  ESM_CUDA(kernels::launch(kernels::ScatterRowsArgs{.capacity = rows.index.numel(),
                                                    .total_rows = 0,  // the others keep their content
                                                    .row_bytes = from.size(1) * from.element_size(),
                                                    .rows = pointer<int32_t>(rows.index),
                                                    .count = pointer<int32_t>(rows.count),
                                                    .from = raw(from),
                                                    .to = raw(to)},
                           context.stream()));
}

void cross_entropy(Workspace& ws, const CrossEntropyArgs& a) {
  const device::Phase phase(ws.context(), "scored rows and loss");
  ESM_CHECK(a.logits.size(1) == kernels::CrossEntropyArgs::kCols && a.bias.numel() == a.classes,
            "cross entropy of {} columns, {} classes", a.logits.size(1), a.classes);
  ESM_CUDA(kernels::launch(
      kernels::CrossEntropyArgs{.logits_dtype = dtype_of(a.logits),
                                .dlogits_dtype = a.dlogits.defined() ? dtype_of(a.dlogits) : DType::kBF16,
                                .capacity = a.logits.size(0),
                                .classes = static_cast<int>(a.classes),
                                .logits = raw(a.logits),
                                .bias = pointer<float>(a.bias),
                                .targets = pointer<uint8_t>(a.targets),
                                .n_scored = pointer<int32_t>(a.count),
                                .label_smoothing = static_cast<float>(a.label_smoothing),
                                .sums = reinterpret_cast<kernels::LossSums*>(pointer<double>(a.sums)),
                                .dlogits = raw(a.dlogits),
                                .dbias = pointer<float>(a.dbias),
                                .workspace = ws.scratch(Workspace::kPartials, kernels::cross_entropy_workspace())},
      ws.context().stream()));
}

int64_t embedding_backward_floats(int64_t rows, int64_t cols, int64_t vocabulary) {
  return floats_of(kernels::embedding_backward_workspace(rows, cols, vocabulary));
}

int64_t cross_entropy_floats() { return floats_of(kernels::cross_entropy_workspace()); }

}  // namespace esm::ops::cuda
