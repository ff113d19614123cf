#include "data/batch_maker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "data/sampler.h"
#include "data/vocabulary.h"

namespace esm::data {
namespace {

void close_segment(int64_t end, bool dummy, Batch& batch) {
  batch.max_seqlen = std::max(batch.max_seqlen, static_cast<int32_t>(end) - batch.cu_seqlens.back());
  batch.cu_seqlens.push_back(static_cast<int32_t>(end));
  batch.is_dummy.push_back(dummy ? 1 : 0);
}

}  // namespace

BatchMaker::BatchMaker(SampleList samples, Masker masker, uint64_t seed, int64_t budget_tokens, int64_t max_tokens,
                       bool shuffled)
    : samples_(std::move(samples)),
      masker_(masker),
      seed_(seed),
      budget_(budget_tokens),
      max_tokens_(max_tokens),
      shuffled_(shuffled) {
  ESM_CHECK(budget_ > 0 && budget_ < (int64_t{1} << 31), "a batch of {} tokens", budget_);
}

int64_t BatchMaker::index_of(const PendingSample& sample) const {
  return shuffled_ ? EpochOrder(seed_, sample.epoch, samples_.size()).at(sample.position) : sample.position;
}

void BatchMaker::fill(const BatchPlan& plan, Batch& batch) const {
  batch.tokens.assign(static_cast<size_t>(budget_), kPadToken);
  batch.cu_seqlens.assign(1, 0);
  batch.is_dummy.clear();
  batch.scored_rows.clear();
  batch.targets.clear();
  batch.segments.clear();
  batch.real_tokens = 0;
  batch.max_seqlen = 0;
  int64_t slot = 0;
  for (const PendingSample& sample : plan.samples) {
    add_sample(sample, slot, batch);
    const int64_t n = batch.segments.back().n_tokens;
    close_segment(slot + n, false, batch);
    if (n < plan.row_tokens) close_segment(slot + plan.row_tokens, true, batch);
    slot += std::max(n, plan.row_tokens);
  }
  // The tail in pieces no longer than a sequence may be, so that no buffer has to hold a longer one.
  while (slot < budget_) {
    slot = std::min(budget_, slot + max_tokens_);
    close_segment(slot, true, batch);
  }
}

void BatchMaker::add_sample(const PendingSample& sample, int64_t slot, Batch& batch) const {
  const Sample piece = samples_.at(seed_, sample.epoch, index_of(sample));
  const int64_t n = piece.residues + kSpecialsPerSequence;
  ESM_CHECK(piece.residues > 0 && slot + n <= budget_, "a sample of {} tokens at slot {} of {}", n, slot, budget_);
  const std::span<uint8_t> row = std::span(batch.tokens).subspan(static_cast<size_t>(slot), static_cast<size_t>(n));
  const std::span<uint8_t> residues = row.subspan(1, static_cast<size_t>(piece.residues));
  row.front() = kClsToken;
  row.back() = kEosToken;
  samples_.dataset().read(piece.sequence, piece.start, residues);
  masker_.apply(sample.epoch, piece.sequence, piece.start, residues, static_cast<int32_t>(slot + 1), batch.scored_rows,
                batch.targets);
  batch.segments.push_back({piece.sequence, sample.epoch, narrow<int32_t>(piece.start), narrow<int32_t>(n)});
  batch.real_tokens += n;
}

}  // namespace esm::data
