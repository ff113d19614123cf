// The order of an epoch: a pseudo-random bijection on [0, n), evaluated one position at a time.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/philox.h"

namespace esm::data {

/// position -> index, for one (seed, epoch, set). An alternating Feistel network over the next power of two at or above
/// n (at least 2^8) with Philox as round function; values outside [0, n) are sent through again ("cycle walking", Black
/// and Rogaway, CT-RSA 2002). Nothing is stored; at() takes a few hundred nanoseconds (microseconds for n below 30).
class EpochOrder {
 public:
  EpochOrder(uint64_t seed, int64_t epoch, int64_t n, int64_t set = 0)
      : seed_(seed),
        epoch_(static_cast<uint64_t>(epoch)),
        n_(static_cast<uint64_t>(n)),
        first_word_(static_cast<uint32_t>(set) * kRounds) {
    ESM_CHECK(n > 0 && n < (int64_t{1} << 60) && epoch >= 0 && epoch < (int64_t{1} << 32), "order of {} in epoch {}", n,
              epoch);
    ESM_CHECK(set >= 0 && set < kMaxSets, "order of set {}", set);
    const int bits = std::max(8, static_cast<int>(std::bit_width(n_ - 1)));
    low_bits_ = bits / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1;
    high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  }

  int64_t at(int64_t position) const {
    ESM_CHECK(position >= 0 && static_cast<uint64_t>(position) < n_, "position {} of {}", position, n_);
    if (n_ == 1) return 0;
    uint64_t value = static_cast<uint64_t>(position);
    do value = permute(value);
    while (value >= n_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint32_t kRounds = 8;
  static constexpr int64_t kMaxSets = int64_t{1} << 20;

  uint64_t permute(uint64_t value) const {
    // Each half changes the other in turn; they have at most 30 bits, since n is below 2^60.
    uint64_t high = value >> low_bits_, low = value & low_mask_;
    for (uint32_t round = 0; round < kRounds; round += 2) {
      high ^= word(round, low) & high_mask_;
      low ^= word(round + 1, high) & low_mask_;
    }
    return high << low_bits_ | low;
  }
  uint32_t word(uint32_t round, uint64_t half) const {
    return philox(seed_, RandomStream::kOrder, epoch_ << 32 | half, first_word_ + round).v[0];
  }

  uint64_t seed_, epoch_, n_, low_mask_, high_mask_;
  uint32_t first_word_;
  int low_bits_;
};

}  // namespace esm::data
