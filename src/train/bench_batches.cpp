#include "train/bench_batches.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "data/vocabulary.h"
#include "ops/attention_choice.h"
#include "train/setup.h"

namespace esm::train {
namespace {

constexpr uint64_t kSeed = 1;
constexpr uint64_t kBatches = 4;  // different synthetic ones

std::vector<int64_t> lengths_of(const RunConfig& config, const BenchBatchOptions& options, uint64_t seed) {
  const int64_t tokens = config.data.tokens_per_batch;
  if (options.seqlen == 0) return ops::protein_lengths(tokens, config.data.max_tokens, seed);
  if (options.seqlen < 3 || options.seqlen > config.data.max_tokens)
    fail<ConfigError>("--seqlen {}: a length from 3 to data.max_tokens ({}) is wanted", options.seqlen,
                      config.data.max_tokens);
  return std::vector<int64_t>(static_cast<size_t>(tokens / options.seqlen), options.seqlen);
}

/// Random residues, masked as data.masking says.
data::Batch synthetic_batch(const RunConfig& config, const BenchBatchOptions& options, uint64_t seed) {
  const int64_t tokens = config.data.tokens_per_batch;
  const data::MaskingConfig& masking = config.data.masking;
  data::Batch batch;
  batch.tokens.assign(static_cast<size_t>(tokens), data::kPadToken);
  batch.cu_seqlens.push_back(0);
  const auto close = [&](int64_t end, bool dummy) {
    batch.max_seqlen = std::max(batch.max_seqlen, narrow<int32_t>(end - batch.cu_seqlens.back()));
    batch.cu_seqlens.push_back(narrow<int32_t>(end));
    batch.is_dummy.push_back(dummy ? 1 : 0);
  };
  for (const int64_t length : lengths_of(config, options, seed)) {
    const int64_t first = batch.cu_seqlens.back(), last = first + length - 1;
    for (int64_t t = first; t <= last; ++t) {
      const PhiloxResult words = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(t), 78);
      uint8_t& token = batch.tokens[static_cast<size_t>(t)];
      token = t == first  ? data::kClsToken
              : t == last ? data::kEosToken
                          : static_cast<uint8_t>(data::kFirstAminoAcid + uniform_below(words.v[0], 20));
      if (t == first || t == last || static_cast<double>(uniform01(words.v[1])) >= masking.rate) continue;
      batch.scored_rows.push_back(narrow<int32_t>(t));
      batch.targets.push_back(token);
      const double what = static_cast<double>(uniform01(words.v[2]));
      if (what < masking.mask_share)
        token = data::kMaskToken;
      else if (what < masking.mask_share + masking.random_share)
        token = static_cast<uint8_t>(data::kFirstAminoAcid + uniform_below(words.v[3], 20));
    }
    close(first + length, false);
    batch.segments.push_back({.n_tokens = narrow<int32_t>(length)});
    batch.real_tokens += length;
  }
  while (batch.cu_seqlens.back() < tokens)
    close(std::min<int64_t>(tokens, batch.cu_seqlens.back() + config.data.max_tokens), true);
  return batch;
}

data::Loader open_loader(RunConfig config, const BenchBatchOptions& options) {
  config.data.valid.clear();
  return {open_data(config, {.data_cache = options.data_cache}).train, data::loader_options(config.data, kSeed)};
}

}  // namespace

BenchBatches::BenchBatches(const RunConfig& config, const BenchBatchOptions& options) {
  if (options.real_data)
    loader_ = std::make_unique<data::Loader>(open_loader(config, options));
  else
    for (uint64_t i = 0; i < kBatches; ++i) synthetic_.push_back(synthetic_batch(config, options, kSeed + i));
}

void BenchBatches::next(data::Batch& batch) {
  if (loader_)
    loader_->next(batch);
  else
    batch = synthetic_[next_++ % kBatches];
  for (const data::Segment& segment : batch.segments) {
    const double length = segment.n_tokens;
    squares_ += length * length;
    tokens_ += length;
  }
}

}  // namespace esm::train
