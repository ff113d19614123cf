#include "ops/embedding.h"

#include "ops/dispatch.h"

namespace esm::ops {

std::vector<float> embedding_factors(const Pack& pack, std::span<const uint8_t> tokens, bool token_dropout) {
  std::vector<float> factors(pack.tokens, 0.0f);
  for (int64_t s = 0; s < pack.segments(); ++s) {
    if (pack.is_dummy[s] != 0) continue;
    const int64_t begin = pack.cu_seqlens[s], end = pack.cu_seqlens[s + 1];
    float factor = 1.0f;
    if (token_dropout) {
      int64_t masked = 0;
      for (int64_t t = begin; t < end; ++t) masked += tokens[t] == kMaskToken ? 1 : 0;
      const float shown = 1.0f - static_cast<float>(masked) / static_cast<float>(end - begin);
      factor = masked < end - begin ? static_cast<float>(1 - 0.15 * 0.8) / shown : 0.0f;
    }
    for (int64_t t = begin; t < end; ++t)
      factors[t] = tokens[t] == kPadToken || (token_dropout && tokens[t] == kMaskToken) ? 0.0f : factor;
  }
  return factors;
}

void embedding(std::span<const uint8_t> tokens, std::span<const float> factors, const at::Tensor& weight,
               const at::Tensor& y) {
  require_cpu("embedding", {weight, y});
  with_element(y, [&](auto element) {
    using T = decltype(element);
    cpu::embedding(y.size(0), y.size(1), tokens.data(), factors.data(), data<T>(weight), data<T>(y));
  });
}

void embedding_backward(std::span<const uint8_t> tokens, std::span<const float> factors, const at::Tensor& dy,
                        const at::Tensor& dweight) {
  require_cpu("embedding_backward", {dy, dweight});
  ESM_CHECK(dweight.size(0) <= cpu::kMaxVocabulary, "at most {} token ids", cpu::kMaxVocabulary);
  with_element(dy, [&](auto element) {
    using T = decltype(element);
    cpu::embedding_backward(dy.size(0), dy.size(1), dweight.size(0), tokens.data(), factors.data(), data<T>(dy),
                            data<float>(dweight));
  });
}

}  // namespace esm::ops
