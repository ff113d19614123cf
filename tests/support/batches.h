// Packed batches made by hand.
#pragma once
#include <cstdint>
#include <vector>

#include "base/narrow.h"
#include "base/philox.h"
#include "data/batch.h"

namespace esm::test {

/// One sequence of a batch: input ids, and labels (true id, or -1 where nothing is scored).
struct Row {
  std::vector<uint8_t> tokens;
  std::vector<int> labels;
};

/// The rows one after the other; the rest of `budget` (0: just up to the next multiple of 128) is a dummy segment.
inline data::Batch make_batch(const std::vector<Row>& rows, int64_t budget = 0) {
  data::Batch batch;
  batch.cu_seqlens.push_back(0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.tokens.size(); ++i)
      if (row.labels[i] >= 0) {
        batch.scored_rows.push_back(static_cast<int32_t>(batch.tokens.size() + i));
        batch.targets.push_back(static_cast<uint8_t>(row.labels[i]));
      }
    batch.segments.push_back(
        {.sequence = static_cast<int64_t>(batch.segments.size()), .n_tokens = static_cast<int32_t>(row.tokens.size())});
    batch.tokens.insert(batch.tokens.end(), row.tokens.begin(), row.tokens.end());
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.is_dummy.push_back(0);
  }
  batch.real_tokens = static_cast<int64_t>(batch.tokens.size());
  if (budget == 0) budget = round_up<int64_t>(batch.real_tokens, 128);
  if (batch.real_tokens < budget) {
    batch.tokens.resize(budget, 1);
    batch.cu_seqlens.push_back(static_cast<int32_t>(budget));
    batch.is_dummy.push_back(1);
  }
  for (size_t s = 1; s < batch.cu_seqlens.size(); ++s)
    batch.max_seqlen = std::max(batch.max_seqlen, batch.cu_seqlens[s] - batch.cu_seqlens[s - 1]);
  return batch;
}

/// A random protein of `length` tokens, <cls> and <eos> included; about a quarter of its residues are scored, most of
/// them masked. Length 1 is a lone <cls>, scored.
inline Row random_row(uint64_t seed, int64_t length) {
  Row row;
  for (int64_t i = 0; i < length; ++i) {
    const PhiloxResult words = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(i));
    const int residue = 4 + static_cast<int>(uniform_below(words.v[0], 20));
    const bool special = i == 0 || i == length - 1;
    const int token = i == 0 ? 0 : i == length - 1 ? 2 : residue;
    const bool scored = length == 1 || (!special && uniform_below(words.v[1], 4) == 0);
    const bool masked = scored && !special && uniform_below(words.v[2], 5) != 0;
    row.tokens.push_back(static_cast<uint8_t>(masked ? 32 : token));
    row.labels.push_back(scored ? token : -1);
  }
  return row;
}

/// Four proteins of 60, 1, 33 and 101 tokens, 256 with the dummy.
inline data::Batch some_batch(uint64_t seed = 1) {
  return make_batch(
      {random_row(seed, 60), random_row(seed + 1, 1), random_row(seed + 2, 33), random_row(seed + 3, 101)});
}

}  // namespace esm::test
