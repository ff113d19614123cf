#include "models/batch_pieces.h"

#include "support/batches.h"
#include "support/catch.h"
#include "support/compare.h"
#include "support/models.h"

namespace esm::test {
namespace {

data::Batch proteins() {
  return make_batch({random_row(1, 700), random_row(2, 40), random_row(3, 900), random_row(4, 284), random_row(5, 3),
                     random_row(6, 1024), random_row(7, 500)},
                    4608);
}

std::vector<double> all_gradients(models::Esm2& model) {
  std::vector<double> result;
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i)
      for (const double value : values(unit->view(nn::Role::kGrad, i))) result.push_back(value);
  return result;
}

}  // namespace

TEST_CASE("pieces of whole segments make up their batch") {
  const data::Batch batch = proteins();
  const std::vector<data::Batch> pieces = models::in_pieces(batch, 1024);
  // 700 + 40 | 900 | 284 + 3 | 1024 | 500 | the dummy that is left
  const std::vector<int64_t> expected{740, 900, 287, 1024, 500, 1157};
  REQUIRE(pieces.size() == expected.size());
  data::Batch again;
  again.cu_seqlens.push_back(0);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const data::Batch& piece = pieces[p];
    CHECK(piece.budget() == expected[p]);
    CHECK(piece.real_tokens == (p + 1 < pieces.size() ? piece.budget() : 0));
    const auto begin = static_cast<int32_t>(again.budget());
    again.tokens.insert(again.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    CHECK(piece.cu_seqlens.front() == 0);
    int32_t longest = 0;
    for (size_t s = 1; s < piece.cu_seqlens.size(); ++s) {
      again.cu_seqlens.push_back(begin + piece.cu_seqlens[s]);
      longest = std::max(longest, piece.cu_seqlens[s] - piece.cu_seqlens[s - 1]);
    }
    CHECK(piece.max_seqlen == longest);
    again.is_dummy.insert(again.is_dummy.end(), piece.is_dummy.begin(), piece.is_dummy.end());
    for (const int32_t row : piece.scored_rows) again.scored_rows.push_back(begin + row);
    again.targets.insert(again.targets.end(), piece.targets.begin(), piece.targets.end());
    for (const data::Segment& segment : piece.segments) again.segments.push_back(segment);
  }
  CHECK(again.tokens == batch.tokens);
  CHECK(again.cu_seqlens == batch.cu_seqlens);
  CHECK(again.is_dummy == batch.is_dummy);
  CHECK(again.scored_rows == batch.scored_rows);
  CHECK(again.targets == batch.targets);
  REQUIRE(again.segments.size() == batch.segments.size());
  for (size_t s = 0; s < again.segments.size(); ++s) CHECK(again.segments[s].sequence == batch.segments[s].sequence);
  CHECK(models::in_pieces(batch, batch.budget()).size() == 1);
}

TEST_CASE("a batch in pieces is the batch") {
  const data::Batch batch = proteins();
  models::Esm2 model = random_model(small_config(2, 2, 16), {.tokens_per_batch = batch.budget(), .max_tokens = 1024});
  const auto gradients = [&] {
    model.begin_step();
    model.accumulate(batch);
    return std::pair(ops::read_loss_sums(model.loss_sums()), all_gradients(model));
  };
  const auto [sums, pieces] = gradients();
  const models::LossSums evaluated = model.evaluate(batch);
  const models::Outputs out = model.forward(batch, {.logits = true, .embeddings = true});
  model.watch(true);  // what is watched is measured over all tokens: no pieces
  const auto [whole_sums, whole] = gradients();
  const models::Outputs whole_out = model.forward(batch, {.logits = true, .embeddings = true});

  CHECK(sums.scored == batch.n_scored());
  CHECK(sums.correct == whole_sums.correct);
  CHECK(sums.loss == Approx(whole_sums.loss).epsilon(1e-6));
  CHECK(evaluated.n_scored == batch.n_scored());
  CHECK(evaluated.loss_sum == Approx(whole_sums.loss).epsilon(1e-6));
  CHECK(pieces != whole);  // sums in another order: both ways were taken
  CHECK(difference(pieces, whole).relative_l2 < 1e-5);
  const auto real = [&](const at::Tensor& x) { return values(x.narrow(0, 0, batch.real_tokens)); };
  CHECK(difference(real(out.logits_TV), real(whole_out.logits_TV)).relative_l2 < 1e-5);
  CHECK(difference(real(out.embeddings_TD), real(whole_out.embeddings_TD)).relative_l2 < 1e-5);
}

}  // namespace esm::test
