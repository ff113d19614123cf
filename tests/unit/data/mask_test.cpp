// Which residues are masked: rates, independence of cuts and neighbours, never a special token.
#include "data/mask.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/vocabulary.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;

namespace {

struct Masked {
  std::vector<uint8_t> tokens;
  std::vector<int32_t> rows;
  std::vector<uint8_t> targets;
};

Masked mask(const Masker& masker, std::vector<uint8_t> tokens, int64_t epoch, int64_t sequence, int64_t start = 0) {
  Masked out{std::move(tokens), {}, {}};
  masker.apply(epoch, sequence, start, out.tokens, 0, out.rows, out.targets);
  return out;
}

// |k - n p| within 4.5 deviations of a binomial.
bool near_share(int64_t k, int64_t n, double p) {
  return std::abs(static_cast<double>(k) - static_cast<double>(n) * p) <
         4.5 * std::sqrt(static_cast<double>(n) * p * (1 - p));
}

}  // namespace

TEST_CASE("rates are 15 % chosen, of these 80 / 10 / 10, random residues uniform over the 20") {
  const Masker masker({}, 5, RandomStream::kMask);
  int64_t n = 0, chosen = 0, masked = 0, kept = 0;
  std::array<int64_t, kVocabularySize> random{};
  for (int64_t sequence = 0; sequence < 4000; ++sequence) {
    const std::vector<uint8_t> tokens(500, 24);  // X: not among the random residues
    const Masked result = mask(masker, tokens, 3, sequence);
    n += 500;
    chosen += std::ssize(result.rows);
    for (size_t i = 0; i < result.rows.size(); ++i) {
      CHECK(result.targets[i] == 24);
      const uint8_t now = result.tokens[static_cast<size_t>(result.rows[i])];
      if (now == kMaskToken)
        ++masked;
      else if (now == 24)
        ++kept;
      else
        ++random[now];
    }
  }
  CHECK(near_share(chosen, n, 0.15));
  CHECK(near_share(masked, chosen, 0.8));
  CHECK(near_share(kept, chosen, 0.1));
  const int64_t randoms = chosen - masked - kept;
  double chi2 = 0;
  for (int token = 0; token < kVocabularySize; ++token) {
    if (token < kFirstAminoAcid || token > kLastAminoAcid) {
      CHECK(random[static_cast<size_t>(token)] == 0);
      continue;
    }
    const double expected = static_cast<double>(randoms) / 20;
    chi2 += (static_cast<double>(random[static_cast<size_t>(token)]) - expected) *
            (static_cast<double>(random[static_cast<size_t>(token)]) - expected) / expected;
  }
  CHECK(chi2 < 43.8);  // 19 degrees of freedom, 0.999
}

TEST_CASE("all_tokens draws every one of the 33 ids") {
  const Masker masker({.rate = 1, .mask_share = 0, .random_share = 1, .random_residues = RandomResidues::kAllTokens}, 5,
                      RandomStream::kMask);
  std::array<int64_t, kVocabularySize> seen{};
  const Masked result = mask(masker, std::vector<uint8_t>(33000, 4), 0, 0);
  CHECK(result.rows.size() == 33000);
  for (const uint8_t token : result.tokens) ++seen[token];
  for (const int64_t count : seen) CHECK(near_share(count, 33000, 1.0 / 33));
}

TEST_CASE("shares of 0 and 1 hold exactly") {
  CHECK(mask(Masker({.rate = 0}, 1, RandomStream::kMask), std::vector<uint8_t>(1000, 4), 0, 0).rows.empty());
  const Masked all = mask(Masker({.rate = 1, .mask_share = 1, .random_share = 0}, 1, RandomStream::kMask),
                          std::vector<uint8_t>(1000, 4), 0, 0);
  CHECK(all.tokens == std::vector<uint8_t>(1000, kMaskToken));
  const Masked kept = mask(Masker({.rate = 1, .mask_share = 0, .random_share = 0}, 1, RandomStream::kMask),
                           std::vector<uint8_t>(1000, 4), 0, 0);
  CHECK(kept.rows.size() == 1000);
  CHECK(kept.tokens == std::vector<uint8_t>(1000, 4));
}

TEST_CASE("<unk> and special tokens are never chosen") {
  const Masker masker({.rate = 1, .mask_share = 1, .random_share = 0}, 1, RandomStream::kMask);
  const Masked result = mask(masker, {0, 1, 2, 3, 31, 32, 4, 23, 24, 30}, 0, 0);
  CHECK(result.rows == std::vector<int32_t>{6, 7, 8, 9});
  CHECK(result.targets == std::vector<uint8_t>{4, 23, 24, 30});
}

TEST_CASE("a residue's fate does not depend on where the piece begins or ends") {
  const Masker masker({}, 9, RandomStream::kMask);
  std::vector<uint8_t> sequence;
  for (int i = 0; i < 300; ++i) sequence.push_back(static_cast<uint8_t>(4 + i * 7 % 20));
  const Masked whole = mask(masker, sequence, 2, 77);
  for (const int64_t start : {1, 2, 3, 4, 5, 100, 299}) {
    const Masked piece =
        mask(masker, {sequence.begin() + start, sequence.end() - (start < 200 ? 50 : 0)}, 2, 77, start);
    INFO(start);
    CHECK(std::equal(piece.tokens.begin(), piece.tokens.end(), whole.tokens.begin() + start));
  }
}

TEST_CASE("masks repeat after 2^24 epochs, and not before") {
  const Masker masker({}, 9, RandomStream::kMask);
  const std::vector<uint8_t> tokens(400, 5);
  constexpr int64_t kPeriod = int64_t{1} << 24;
  for (const int64_t epoch : {int64_t{0}, int64_t{5}, kPeriod - 1}) {
    const Masked first = mask(masker, tokens, epoch, 77);
    for (const int64_t later : {epoch + kPeriod, epoch + 300 * kPeriod}) {
      const Masked again = mask(masker, tokens, later, 77);
      CHECK(again.tokens == first.tokens);
      CHECK(again.rows == first.rows);
    }
  }
  CHECK(mask(masker, tokens, kPeriod - 1, 77).rows != mask(masker, tokens, 0, 77).rows);
  CHECK(mask(masker, tokens, kPeriod / 2, 77).rows != mask(masker, tokens, 0, 77).rows);
}

TEST_CASE("seed, stream, epoch and sequence all change the mask") {
  const std::vector<uint8_t> tokens(400, 5);
  const auto rows = mask(Masker({}, 9, RandomStream::kMask), tokens, 2, 77).rows;
  CHECK(mask(Masker({}, 9, RandomStream::kMask), tokens, 2, 77).rows == rows);
  CHECK(mask(Masker({}, 10, RandomStream::kMask), tokens, 2, 77).rows != rows);
  CHECK(mask(Masker({}, 9, RandomStream::kValidMask), tokens, 2, 77).rows != rows);
  CHECK(mask(Masker({}, 9, RandomStream::kMask), tokens, 3, 77).rows != rows);
  CHECK(mask(Masker({}, 9, RandomStream::kMask), tokens, 2, 78).rows != rows);
}
