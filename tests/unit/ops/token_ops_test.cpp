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
  return {.tokens = 11,
          .max_seqlen = 5,
          .ids = byte_values(kTokens),
          .cu_seqlens = ints({0, 5, 6, 8, 11}),
          .is_dummy = byte_values({0, 0, 0, 1}),
          .positions = {}};
}

at::Tensor factors_of(bool token_dropout) {
  const at::Tensor factors = at::full({11}, std::nan(""), at::kFloat);
  ops::embedding_factors(Context{}, token_pack(), token_dropout, factors);
  return factors;
}

struct Loss {
  double loss_sum;
  int64_t n_correct;
};

/// Adds the loss to sums that are not 0 before, and dbias to one that is not.
Loss cross_entropy(const at::Tensor& logits, const std::vector<uint8_t>& targets, double smoothing,
                   const at::Tensor& dlogits) {
  ops::Workspace ws(Context{.threads = 1});
  const int32_t rows = static_cast<int32_t>(targets.size());
  const at::Tensor sums = at::full({3}, 1.0, at::kDouble);
  const at::Tensor dbias = dlogits.defined() ? at::full({33}, 2.0, at::kFloat) : at::Tensor();
  ops::cross_entropy(ws, {.logits = logits,
                          .bias = at::zeros({33}, at::kFloat),
                          .targets = byte_values(targets),
                          .count = ints({rows}),
                          .classes = 33,
                          .label_smoothing = smoothing,
                          .sums = sums,
                          .dlogits = dlogits,
                          .dbias = dbias});
  if (dlogits.defined())
    check_close("dbias", values(dbias), values(dlogits.to(at::kDouble).sum(0).add(2.0)),
                operation_tolerance(DType::kF32, rows));
  const ops::LossSums read = ops::read_loss_sums(sums);
  CHECK(read.scored == rows + 1);
  return {read.loss - 1, read.correct - 1};
}

}  // namespace

TEST_CASE("factors of token dropout") {
  const float shown = 0.88f / (1.0f - 1.0f / 5.0f);
  CHECK(bytes(factors_of(true)) ==
        bytes(tensor_of(std::vector<float>{shown, shown, 0, shown, shown, 0.88f, 0, 0, 0, 0, 0}, at::kFloat)));
  CHECK(values(factors_of(false)) == std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
}

TEST_CASE("embedding rows are scaled copies, rows of factor 0 exactly 0, and the gradient is their transpose") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t cols = GENERATE(5, 64, 130);
  const at::Tensor factors_T = factors_of(true);
  const std::vector<double> factors = values(factors_T);
  const at::Tensor weight = random_tensor(1, {33, cols}, type), y = at::empty({11, cols}, type);
  weight.select(0, 1).fill_(std::nan(""));  // <pad>'s row must not come through a factor of 0
  weight.select(0, 32).fill_(INFINITY);
  ops::embedding(Context{}, token_pack().ids, factors_T, weight, y);
  const std::vector<double> rows = values(y), table = values(weight);
  std::vector<double> expected;
  for (size_t t = 0; t < kTokens.size(); ++t)
    for (int64_t c = 0; c < cols; ++c)
      expected.push_back(factors[t] == 0 ? 0 : factors[t] * table[kTokens[t] * cols + c]);
  const DType dtype = type == at::kFloat ? DType::kF32 : DType::kBF16;
  check_close("y", rows, expected, operation_tolerance(dtype, 1));
  CHECK(bytes(y.narrow(0, 8, 3)) == bytes(at::zeros({3, cols}, type)));

  const at::Tensor dy = random_tensor(2, {11, cols}, type), dweight = random_tensor(3, {33, cols});
  std::vector<double> sums = values(dweight);
  const std::vector<double> gradient = values(dy);
  for (size_t t = 0; t < kTokens.size(); ++t)
    for (int64_t c = 0; c < cols; ++c) sums[kTokens[t] * cols + c] += factors[t] * gradient[t * cols + c];
  const auto pad_before = bytes(dweight.select(0, 1)), mask_before = bytes(dweight.select(0, 32));
  ops::Workspace ws(Context{.threads = 1});
  ops::embedding_backward(ws, token_pack().ids, factors_T, dy, dweight);
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
  const Loss result = cross_entropy(logits, targets, smoothing, dlogits);

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
  CHECK(cross_entropy(logits, targets, smoothing, {}).loss_sum == result.loss_sum);
}

TEST_CASE("cross entropy of extreme logits, and ties go to the lowest id") {
  const at::Tensor logits = at::zeros({3, 33}, at::kFloat);
  float* z = logits.mutable_data_ptr<float>();
  z[5] = 1e5f;       // row 0: certain and right
  z[33 + 6] = 1e5f;  // row 1: certain and wrong; row 2: all equal
  const std::vector<uint8_t> targets{5, 4, 0};
  const Loss result = cross_entropy(logits, targets, 0, logits);
  CHECK(result.loss_sum == Approx(1e5 + std::log(33.0)).epsilon(1e-12));
  CHECK(result.n_correct == 2);
  CHECK(values(logits)[5] == 0);
  CHECK(values(logits)[33 + 6] == 1);
  CHECK(values(logits)[33 + 4] == -1);
}

}  // namespace esm::test
