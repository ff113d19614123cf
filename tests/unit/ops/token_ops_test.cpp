// Embedding with token dropout, cross entropy.
#include <cmath>

#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

// Segments: <cls> L <mask> A <eos>; <cls>; <mask> <mask>; dummy of three.
const std::vector<uint8_t> kTokens{0, 4, 32, 5, 2, 0, 32, 32, 1, 1, 1};
ops::Pack token_pack() {
  return {.tokens = 11, .cu_seqlens = {0, 5, 6, 8, 11}, .is_dummy = {0, 0, 0, 1}, .positions = {}, .max_seqlen = 5};
}

}  // namespace

TEST_CASE("factors of token dropout") {
  const float shown = 0.88f / (1.0f - 1.0f / 5.0f);
  CHECK(ops::embedding_factors(token_pack(), kTokens, true) ==
        std::vector<float>{shown, shown, 0, shown, shown, 0.88f, 0, 0, 0, 0, 0});
  CHECK(ops::embedding_factors(token_pack(), kTokens, false) == std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
}

TEST_CASE("embedding rows are scaled copies, rows of factor 0 exactly 0, and the gradient is their transpose") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t cols = GENERATE(5, 64, 130);
  const std::vector<float> factors = ops::embedding_factors(token_pack(), kTokens, true);
  const at::Tensor weight = random_tensor(1, {33, cols}, type), y = at::empty({11, cols}, type);
  weight.select(0, 1).fill_(std::nan(""));  // <pad>'s row must not come through a factor of 0
  weight.select(0, 32).fill_(INFINITY);
  ops::embedding(kTokens, factors, weight, y);
  const std::vector<double> rows = values(y), table = values(weight);
  std::vector<double> expected;
  for (size_t t = 0; t < kTokens.size(); ++t)
    for (int64_t c = 0; c < cols; ++c)
      expected.push_back(factors[t] == 0 ? 0 : static_cast<double>(factors[t]) * table[kTokens[t] * cols + c]);
  const DType dtype = type == at::kFloat ? DType::kF32 : DType::kBF16;
  check_close("y", rows, expected, operation_tolerance(dtype, 1));
  CHECK(bytes(y.narrow(0, 8, 3)) == bytes(at::zeros({3, cols}, type)));

  const at::Tensor dy = random_tensor(2, {11, cols}, type), dweight = random_tensor(3, {33, cols});
  std::vector<double> sums = values(dweight);
  const std::vector<double> gradient = values(dy);
  for (size_t t = 0; t < kTokens.size(); ++t)
    for (int64_t c = 0; c < cols; ++c)
      sums[kTokens[t] * cols + c] += static_cast<double>(factors[t]) * gradient[t * cols + c];
  const auto pad_before = bytes(dweight.select(0, 1)), mask_before = bytes(dweight.select(0, 32));
  ops::embedding_backward(kTokens, factors, dy, dweight);
  check_close("dweight", values(dweight), sums, operation_tolerance(DType::kF32, 11));
  CHECK(bytes(dweight.select(0, 1)) == pad_before);
  CHECK(bytes(dweight.select(0, 32)) == mask_before);
}

TEST_CASE("cross entropy: loss, accuracy and gradient") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const double smoothing = GENERATE(0.0, 0.1);
  const int64_t rows = 70, classes = 33;
  const at::Tensor logits = random_tensor(1, {rows, classes}).mul(4), dlogits = at::empty({rows, classes}, type);
  std::vector<uint8_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<uint8_t>(r * 7 % classes));
  const ops::CrossEntropyResult result =
      ops::cross_entropy({.logits = logits, .targets = targets, .label_smoothing = smoothing, .dlogits = dlogits});

  const std::vector<double> z = values(logits);
  double loss = 0;
  int64_t correct = 0;
  std::vector<double> gradient;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    int64_t best = 0;
    for (int64_t c = 0; c < classes; ++c) {
      sum += std::exp(z[r * classes + c]);
      if (z[r * classes + c] > z[r * classes + best]) best = c;
    }
    correct += best == targets[r] ? 1 : 0;
    for (int64_t c = 0; c < classes; ++c) {
      const double log_p = z[r * classes + c] - std::log(sum);
      const double wanted = smoothing / static_cast<double>(classes) + (c == targets[r] ? 1 - smoothing : 0.0);
      loss -= wanted * log_p;
      gradient.push_back(std::exp(log_p) - wanted);
    }
  }
  CHECK(result.loss_sum == Approx(loss).epsilon(1e-12));
  CHECK(result.n_correct == correct);
  check_close("dlogits", values(dlogits), gradient,
              operation_tolerance(type == at::kFloat ? DType::kF32 : DType::kBF16, 1));
  CHECK(ops::cross_entropy({.logits = logits, .targets = targets, .label_smoothing = smoothing, .dlogits = {}})
            .loss_sum == result.loss_sum);
}

TEST_CASE("cross entropy of extreme logits, and ties go to the lowest id") {
  const at::Tensor logits = at::zeros({3, 33}, at::kFloat);
  float* z = logits.mutable_data_ptr<float>();
  z[5] = 1e5f;       // row 0: certain and right
  z[33 + 6] = 1e5f;  // row 1: certain and wrong; row 2: all equal
  const std::vector<uint8_t> targets{5, 4, 0};
  const ops::CrossEntropyResult result =
      ops::cross_entropy({.logits = logits, .targets = targets, .label_smoothing = 0, .dlogits = logits});
  CHECK(result.loss_sum == Approx(1e5 + std::log(33.0)).epsilon(1e-12));
  CHECK(result.n_correct == 2);
  CHECK(values(logits)[5] == 0);
  CHECK(values(logits)[33 + 6] == 1);
  CHECK(values(logits)[33 + 4] == -1);
}

}  // namespace esm::test
