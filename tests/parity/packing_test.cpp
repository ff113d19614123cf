// Packing changes nothing: a sequence sees neither its neighbours nor the padding.
#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/torch.h"

namespace esm::test {
namespace {

const std::vector<int64_t> kLengths{40, 3, 77, 1, 130, 18};

std::vector<Row> random_rows(uint64_t seed) {
  std::vector<Row> rows;
  for (const int64_t length : kLengths) rows.push_back(random_row(100 * seed + rows.size(), length));
  return rows;
}

at::Tensor logits_of(models::Esm2& model, const data::Batch& batch, size_t segment) {
  const at::Tensor all = model.forward(batch, {.logits = true}).logits_TV;
  return all.narrow(0, batch.cu_seqlens[segment], kLengths[segment]);
}

}  // namespace

TEST_CASE("a packed sequence equals the same sequence alone") {
  const int64_t head_dim = GENERATE(16, 24, 64);
  models::Esm2 model = random_model(small_config(2, 2, head_dim), {.tokens_per_batch = 384, .training = false});
  const std::vector<Row> rows = random_rows(1);
  const data::Batch pack = make_batch(rows);
  for (size_t s = 0; s < rows.size(); ++s) {
    const data::Batch alone = make_batch({rows[s]});
    const at::Tensor expected = model.forward(alone, {.logits = true}).logits_TV.narrow(0, 0, kLengths[s]);
    CHECK(difference(values(logits_of(model, pack, s)), values(expected)).of_max < 1e-6);
  }
}

TEST_CASE("other sequences of a pack change no bit") {
  const auto precision = GENERATE(precision::Precision::kFp32, precision::Precision::kBf16);
  const int threads = GENERATE(1, 2);
  models::Esm2 model =
      random_model(small_config(2, 2, 16), {.precision = precision, .tokens_per_batch = 384}, 7, threads);
  for (size_t kept = 0; kept < kLengths.size(); ++kept) {
    // Same places scored in both packs, so that the kept sequence's rows keep their place in the head as well.
    const std::vector<Row> one = random_rows(1);
    std::vector<Row> other = random_rows(2);
    for (size_t s = 0; s < one.size(); ++s) {
      if (s == kept)
        other[s] = one[s];
      else
        for (size_t i = 0; i < one[s].labels.size(); ++i)
          other[s].labels[i] = one[s].labels[i] < 0 ? -1 : 4 + static_cast<int>(i % 20);
    }
    data::Batch a = make_batch(one), b = make_batch(other);
    CHECK(bytes(logits_of(model, a, kept)) == bytes(logits_of(model, b, kept)));
    // Its contribution to the loss, alone and unsummed: score nothing else.
    for (data::Batch* batch : {&a, &b}) {
      std::vector<int32_t> rows;
      std::vector<uint8_t> targets;
      for (size_t i = 0; i < batch->scored_rows.size(); ++i)
        if (batch->scored_rows[i] >= batch->cu_seqlens[kept] && batch->scored_rows[i] < batch->cu_seqlens[kept + 1]) {
          rows.push_back(batch->scored_rows[i]);
          targets.push_back(batch->targets[i]);
        }
      batch->scored_rows = rows;
      batch->targets = targets;
    }
    CHECK(model.evaluate(a).loss_sum == model.evaluate(b).loss_sum);
  }
}

TEST_CASE("the bshd layout, with a dummy segment after every sequence, equals the pack") {
  models::Esm2 model = random_model(small_config(2, 2, 16), {.tokens_per_batch = 512});
  const std::vector<Row> rows{random_row(1, 50), random_row(2, 128), random_row(3, 9)};
  const data::Batch pack = make_batch(rows);
  data::Batch padded;
  padded.cu_seqlens.push_back(0);
  for (const Row& row : rows) {
    const data::Batch one = make_batch({row}, 128);
    const int32_t first = static_cast<int32_t>(padded.tokens.size());
    padded.tokens.insert(padded.tokens.end(), one.tokens.begin(), one.tokens.end());
    for (size_t s = 0; s < one.is_dummy.size(); ++s) {
      padded.cu_seqlens.push_back(first + one.cu_seqlens[s + 1]);
      padded.is_dummy.push_back(one.is_dummy[s]);
    }
    for (const int32_t scored : one.scored_rows) padded.scored_rows.push_back(first + scored);
    padded.targets.insert(padded.targets.end(), one.targets.begin(), one.targets.end());
  }
  const models::LossSums a = model.forward_backward(pack);
  std::vector<std::vector<double>> expected;
  for (nn::UnitStorage* unit : model.units()) expected.push_back(values(unit->flat(nn::Role::kGrad)));
  model.zero_grad();
  const models::LossSums b = model.forward_backward(padded);
  CHECK(a.n_scored == b.n_scored);
  CHECK(a.n_correct == b.n_correct);
  CHECK(std::abs(a.loss_sum / b.loss_sum - 1) < 1e-6);
  for (size_t u = 0; u < expected.size(); ++u)
    check_close(model.units()[u]->name(), values(model.units()[u]->flat(nn::Role::kGrad)), expected[u],
                model_tolerance(DType::kF32, 2, 187));
}

}  // namespace esm::test
