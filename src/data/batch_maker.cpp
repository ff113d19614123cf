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

BatchMaker::BatchMaker(std::vector<TrainingSet> sets, Masker masker, const Options& options)
    : shares_(shares(sets)),
      fingerprint_(data::fingerprint(sets)),
      masker_(masker),
      seed_(options.seed),
      budget_(options.budget_tokens),
      max_tokens_(options.samples.max_tokens),
      shuffled_(options.shuffled) {
  ESM_CHECK(budget_ > 0 && budget_ < (int64_t{1} << 31), "a batch of {} tokens", budget_);
  SampleOptions sampling = options.samples;
  for (TrainingSet& set : sets) {
    first_sequences_.push_back(sampling.first_sequence);
    names_.push_back(std::move(set.name));
    samples_.emplace_back(std::move(set.data), sampling, std::move(set.clusters));
    sampling.first_sequence += samples_.back().dataset().size();
  }
}

std::vector<DrawnSet> BatchMaker::drawn_sets() const {
  std::vector<DrawnSet> sets;
  for (size_t i = 0; i < samples_.size(); ++i) sets.push_back({samples_[i].size(), shares_[i]});
  return sets;
}

std::string BatchMaker::summary() const {
  if (samples_.size() == 1) return samples_.front().summary();
  std::string text = fmt::format("a mixture of {} sets, by share of the sequences drawn:", samples_.size());
  for (size_t i = 0; i < samples_.size(); ++i)
    text += fmt::format("\n  {}: {:.2f} %; {}", names_[i], 100 * shares_[i], samples_[i].summary());
  return text;
}

int64_t BatchMaker::index_of(const Draw& draw) const {
  return shuffled_ ? EpochOrder(seed_, draw.epoch, samples(draw).size(), draw.set).at(draw.position) : draw.position;
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
  for (const Draw& sample : plan.samples) {
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

void BatchMaker::add_sample(const Draw& draw, int64_t slot, Batch& batch) const {
  const Sample piece = samples(draw).at(seed_, draw.epoch, index_of(draw));
  const int64_t sequence = first_sequences_[static_cast<size_t>(draw.set)] + piece.sequence;
  const int64_t n = piece.residues + kSpecialsPerSequence;
  ESM_CHECK(piece.residues > 0 && slot + n <= budget_, "a sample of {} tokens at slot {} of {}", n, slot, budget_);
  const std::span<uint8_t> row = std::span(batch.tokens).subspan(static_cast<size_t>(slot), static_cast<size_t>(n));
  const std::span<uint8_t> residues = row.subspan(1, static_cast<size_t>(piece.residues));
  row.front() = kClsToken;
  row.back() = kEosToken;
  samples(draw).dataset().read(piece.sequence, piece.start, residues);
  masker_.apply(draw.epoch, sequence, piece.start, residues, static_cast<int32_t>(slot + 1), batch.scored_rows,
                batch.targets);
  batch.segments.push_back({sequence, draw.epoch, narrow<int32_t>(piece.start), narrow<int32_t>(n)});
  batch.real_tokens += n;
}

}  // namespace esm::data
