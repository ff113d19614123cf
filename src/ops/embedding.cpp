#include "ops/embedding.h"

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"

namespace esm::ops {

void embedding_factors(const Context& context, const Pack& pack, bool token_dropout, const at::Tensor& factors_T) {
  if (on_cuda(context, "embedding_factors", {pack.ids, pack.cu_seqlens, pack.is_dummy, factors_T}))
    return cuda::embedding_factors(context, pack, token_dropout, factors_T);
  const device::Phase phase(context, "embedding");
  const uint8_t *tokens = data<uint8_t>(pack.ids), *is_dummy = data<uint8_t>(pack.is_dummy);
  const int32_t* cu_seqlens = data<int32_t>(pack.cu_seqlens);
  float* factors = data<float>(factors_T);
  for (int64_t s = 0; s < pack.segments(); ++s) {
    const int64_t begin = cu_seqlens[s], end = cu_seqlens[s + 1];
    float factor = is_dummy[s] != 0 ? 0.0f : 1.0f;
    if (token_dropout && is_dummy[s] == 0) {
      int64_t masked = 0;
      for (int64_t t = begin; t < end; ++t) masked += tokens[t] == kMaskToken ? 1 : 0;
      const float shown = 1.0f - static_cast<float>(masked) / static_cast<float>(end - begin);
      factor = masked < end - begin ? static_cast<float>(1 - 0.15 * 0.8) / shown : 0.0f;
    }
    for (int64_t t = begin; t < end; ++t)
      factors[t] = tokens[t] == kPadToken || (token_dropout && tokens[t] == kMaskToken) ? 0.0f : factor;
  }
}

void embedding(const Context& context, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& weight,
               const at::Tensor& y) {
  if (on_cuda(context, "embedding", {ids, factors, weight, y}))
    return cuda::embedding(context, ids, factors, weight, y);
  const device::Phase phase(context, "embedding");
  with_element(y, [&](auto element) {
    using T = decltype(element);
    cpu::embedding(y.size(0), y.size(1), data<uint8_t>(ids), data<float>(factors), data<T>(weight), data<T>(y));
  });
}

void embedding_backward(Workspace& ws, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& dy,
                        const at::Tensor& dweight) {
  ESM_CHECK(dweight.size(0) <= cpu::kMaxVocabulary, "at most {} token ids", cpu::kMaxVocabulary);
  if (on_cuda(ws.context(), "embedding_backward", {ids, factors, dy, dweight}))
    return cuda::embedding_backward(ws, ids, factors, dy, dweight);
  const device::Phase phase(ws.context(), "embedding backward");
  with_element(dy, [&](auto element) {
    using T = decltype(element);
    cpu::embedding_backward(dy.size(0), dy.size(1), dweight.size(0), data<uint8_t>(ids), data<float>(factors),
                            data<T>(dy), data<float>(dweight));
  });
}

void expect_embedding_backward(Workspace& ws, int64_t rows, int64_t cols, int64_t vocabulary) {
  if (ws.context().on_cuda()) ws.expect(Workspace::kPartials, cuda::embedding_backward_floats(rows, cols, vocabulary));
}

}  // namespace esm::ops
