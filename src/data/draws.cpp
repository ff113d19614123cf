#include "data/draws.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace esm::data {

uint64_t epoch_counter(int64_t epoch, int64_t item) {
  ESM_CHECK(epoch >= 0 && item >= 0 && item < (int64_t{1} << 40), "no counter for epoch {}, item {}", epoch, item);
  constexpr uint64_t kEpochs = uint64_t{1} << 24;
  return (static_cast<uint64_t>(epoch) & (kEpochs - 1)) << 40 | static_cast<uint64_t>(item);
}

DrawStream::DrawStream(std::vector<DrawnSet> sets, uint64_t seed, int64_t epochs, const DrawState& state)
    : sets_(std::move(sets)), seed_(seed), epochs_(epochs), state_(state) {
  ESM_CHECK(!sets_.empty() && (epochs_ == 0 || sets_.size() == 1), "{} epochs of {} sets", epochs_, sets_.size());
  double all = 0, before = 0;
  for (const DrawnSet& set : sets_) {
    ESM_CHECK(set.samples > 0 && set.weight > 0 && std::isfinite(set.weight), "a set of {} samples with weight {}",
              set.samples, set.weight);
    all += set.weight;
  }
  for (const DrawnSet& set : sets_) {
    before += set.weight;
    ends_.push_back(static_cast<uint64_t>(before / all * 0x1p53));
  }
  ends_.back() = uint64_t{1} << 53;
  if (state_.sets.empty()) state_.sets.resize(sets_.size());
  bool fits = state_.sets.size() == sets_.size() && state_.draws >= 0;
  for (size_t i = 0; fits && i < sets_.size(); ++i) {
    const SetPosition& at = state_.sets[i];
    fits = at.epoch >= 0 && at.cursor >= 0 && at.cursor <= sets_[i].samples;
  }
  if (!fits) fail<DataError>("the saved data position does not fit the training data");
}

size_t DrawStream::choose_set() const {
  if (sets_.size() == 1) return 0;
  const PhiloxResult words = philox(seed_, RandomStream::kMixture, static_cast<uint64_t>(state_.draws));
  const uint64_t word = (uint64_t{words.v[0]} << 32 | words.v[1]) >> 11;
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), word) - ends_.begin());
}

bool DrawStream::next(Draw& draw) {
  const size_t set = choose_set();
  SetPosition& at = state_.sets[set];
  if (at.cursor == sets_[set].samples) {
    if (at.epoch + 1 == epochs_) return false;
    at = {at.epoch + 1, 0};
  }
  draw = {at.epoch, at.cursor++, static_cast<int64_t>(set)};
  ++state_.draws;
  return true;
}

bool DrawStream::has_given(const Draw& draw) const {
  if (draw.set < 0 || draw.set >= std::ssize(sets_)) return false;
  const auto set = static_cast<size_t>(draw.set);
  const SetPosition& at = state_.sets[set];
  return draw.epoch >= 0 && draw.epoch <= at.epoch && draw.position >= 0 &&
         draw.position < (draw.epoch < at.epoch ? sets_[set].samples : at.cursor);
}

}  // namespace esm::data
