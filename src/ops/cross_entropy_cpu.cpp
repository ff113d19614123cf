#include <cmath>

#include "ops/cpu_kernels.h"
#include "ops/parallel.h"

namespace esm::ops::cpu {
namespace {

// A row in FP64: 33 classes of the few scored rows cost nothing, and losses are compared to many digits.
template <class T>
double one_row(int64_t classes, const float* row, const float* bias, int64_t target, double smoothing, uint8_t& correct,
               T* dlogits) {
  double logits[kMaxVocabulary] = {};
  for (int64_t c = 0; c < classes; ++c) logits[c] = static_cast<double>(row[c]) + static_cast<double>(bias[c]);
  int64_t best = 0;
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) {
    if (logits[c] > logits[best]) best = c;
    total += logits[c];
  }
  correct = best == target ? 1 : 0;
  const double top = logits[best];
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - top);
  const double log_sum = top + std::log(sum);
  const double count = static_cast<double>(classes), share = smoothing / count;
  const double loss = (1 - smoothing) * (log_sum - logits[target]) + share * (count * log_sum - total);
  if (dlogits != nullptr)
    for (int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(logits[c] - log_sum);
      store(dlogits[c], static_cast<float>(p - share - (c == target ? 1 - smoothing : 0.0)));
    }
  return loss;
}

}  // namespace

template <class T>
void cross_entropy(int64_t rows, int64_t classes, const float* logits, const float* bias, const uint8_t* targets,
                   double label_smoothing, double* losses, uint8_t* correct, T* dlogits) {
  parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      losses[r] = one_row(classes, logits + r * classes, bias, targets[r], label_smoothing, correct[r],
                          dlogits == nullptr ? nullptr : dlogits + r * classes);
  });
}

template void cross_entropy(int64_t, int64_t, const float*, const float*, const uint8_t*, double, double*, uint8_t*,
                            float*);
template void cross_entropy(int64_t, int64_t, const float*, const float*, const uint8_t*, double, double*, uint8_t*,
                            Bf16*);

}  // namespace esm::ops::cpu
