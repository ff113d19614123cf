// The endless stream of draws: which training set each one comes from, and its place in that set's order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace esm::data {

/// Place `position` in the order of `epoch` of a set.
struct Draw {
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t set = 0;
  bool operator==(const Draw&) const = default;
};

/// (epoch, item) as one word of a Philox counter, for draws that differ by epoch; item below 2^40. The epoch is taken
/// modulo 2^24: masks, crops and members of clusters repeat after 16.7 million epochs, which a tiny set in a mixture
/// can reach. (Its order does not: sampler.h.)
uint64_t epoch_counter(int64_t epoch, int64_t item);

/// A set to draw from. Weights are relative to each other.
struct DrawnSet {
  int64_t samples = 0;  // positions of an epoch
  double weight = 1;
};

/// The next draw of a set is (epoch, cursor).
struct SetPosition {
  int64_t epoch = 0;
  int64_t cursor = 0;
  bool operator==(const SetPosition&) const = default;
};

/// From it a stream goes on exactly as the first one would have: a few integers for each set.
struct DrawState {
  int64_t draws = 0;  // of all sets together
  std::vector<SetPosition> sets;
  bool operator==(const DrawState&) const = default;
};

/// Each draw chooses its set with a probability in proportion to the weights, by f(seed, number of the draw), and takes
/// the next place of that set, whose epochs follow each other. With one set nothing is chosen.
class DrawStream {
 public:
  /// `epochs` above 0: the stream ends after so many (of the only set). A state without sets is the beginning.
  /// Throws DataError when the state does not fit the sets.
  DrawStream(std::vector<DrawnSet> sets, uint64_t seed, int64_t epochs, const DrawState& state);

  /// False at the end of the stream.
  bool next(Draw& draw);
  /// Was `draw` given out by this stream or one that it goes on from?
  bool has_given(const Draw& draw) const;
  const DrawState& state() const { return state_; }

 private:
  size_t choose_set() const;

  std::vector<DrawnSet> sets_;
  std::vector<uint64_t> ends_;  // [sets] of 2^53: a word below ends_[i], and of no earlier set, chooses set i
  uint64_t seed_;
  int64_t epochs_;
  DrawState state_;
};

}  // namespace esm::data
