#include "data/mask.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"
#include "data/vocabulary.h"

namespace esm::data {
namespace {

// Words below this happen with probability `share`.
uint64_t threshold(double share) { return static_cast<uint64_t>(std::llround(share * 0x1p32)); }

}  // namespace

Masker::Masker(const MaskingConfig& config, uint64_t seed, RandomStream stream)
    : seed_(seed),
      stream_(stream),
      select_(threshold(config.rate)),
      mask_(threshold(config.rate * config.mask_share)),
      random_(std::min(select_, threshold(config.rate * (config.mask_share + config.random_share)))),
      first_random_(config.random_residues == RandomResidues::kAminoAcids ? kFirstAminoAcid : 0),
      random_choices_(config.random_residues == RandomResidues::kAminoAcids ? kLastAminoAcid - kFirstAminoAcid + 1
                                                                            : kVocabularySize) {}

uint8_t Masker::replacement(uint32_t word, uint8_t token) const {
  if (word < mask_) return kMaskToken;
  if (word >= random_) return token;
  // Given that the word is in [mask_, random_) it is uniform there: its place in that range draws the residue.
  return static_cast<uint8_t>(first_random_ + (word - mask_) * random_choices_ / (random_ - mask_));
}

void Masker::apply(int64_t epoch, int64_t sequence, int64_t start, std::span<uint8_t> tokens, int32_t first_slot,
                   std::vector<int32_t>& scored_rows, std::vector<uint8_t>& targets) const {
  const uint64_t where = epoch_counter(epoch, sequence);
  const int64_t n = std::ssize(tokens);
  for (int64_t block = start / 4; block * 4 < start + n; ++block) {
    const PhiloxResult words = philox(seed_, stream_, where, static_cast<uint32_t>(block));
    for (int lane = 0; lane < 4; ++lane) {
      const int64_t i = block * 4 + lane - start;
      if (words.v[lane] >= select_ || i < 0 || i >= n) continue;
      uint8_t& token = tokens[static_cast<size_t>(i)];
      if (!is_maskable(token)) continue;
      scored_rows.push_back(first_slot + static_cast<int32_t>(i));
      targets.push_back(token);
      token = replacement(words.v[lane], token);
    }
  }
}

}  // namespace esm::data
