#include "data/packer.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"

namespace esm::data {
namespace {

constexpr int64_t kRowMultiple = 8;

}  // namespace

Packer::Packer(PackerOptions options, const PackerState& state)
    : options_(std::move(options)),
      draws_(options_.sets, options_.seed, options_.epochs, state.draws),
      batches_(state.batches),
      given_(state.given) {
  ESM_CHECK(options_.window > 0, "packing in windows of {}", options_.window);
  ESM_CHECK(
      round_up(options_.max_tokens, options_.layout == Layout::kBshd ? kRowMultiple : 1) <= options_.budget_tokens,
      "{} slots cannot hold a sequence of {} tokens", options_.budget_tokens, options_.max_tokens);
  of_length_.resize(static_cast<size_t>(options_.max_tokens) + 1);
  if (given_.empty()) given_.resize(options_.sets.size());
  if (given_.size() != options_.sets.size()) fail<DataError>("the saved data position is of {} sets", given_.size());
  for (const Draw& sample : state.pending) {
    if (!draws_.has_given(sample)) fail<DataError>("the saved data position does not fit the training data");
    const int64_t tokens = options_.tokens_of(sample);
    if (tokens > 0) add({sample, narrow<int32_t>(tokens)});
  }
  // Batches that were cut already stand, unless they no longer fit.
  if (!options_.bucketed) return;
  int64_t first = 0;
  for (const int64_t count : state.groups) {
    if (count <= 0 || count > std::ssize(waiting_) - first) return;
    if (count * row_tokens_of(static_cast<size_t>(first), static_cast<size_t>(count)) > options_.budget_tokens) return;
    first += count;
  }
  if (first != std::ssize(waiting_)) return;
  groups_.assign(state.groups.begin(), state.groups.end());
}

PackerState Packer::state() const {
  PackerState state{batches_, draws_.state(), given_, {}, {groups_.begin(), groups_.end()}};
  state.pending.reserve(waiting_.size());
  for (const Waiting& waiting : waiting_) state.pending.push_back(waiting.sample);
  return state;
}

bool Packer::draw(Waiting& waiting) {
  while (draws_.next(waiting.sample)) {
    const int64_t tokens = options_.tokens_of(waiting.sample);
    ESM_CHECK(tokens <= options_.max_tokens, "a sample of {} tokens", tokens);
    waiting.tokens = narrow<int32_t>(tokens);
    if (tokens > 0) return true;
  }
  return false;
}

void Packer::add(const Waiting& waiting) {
  waiting_.push_back(waiting);
  ++of_length_[static_cast<size_t>(waiting.tokens)];
  longest_ = std::max<int64_t>(longest_, waiting.tokens);
}

void Packer::refill() {
  Waiting waiting;
  while (std::ssize(waiting_) < options_.window && draw(waiting)) add(waiting);
}

bool Packer::next(BatchPlan& plan) {
  plan.samples.clear();
  plan.row_tokens = 0;
  if (groups_.empty()) refill();
  if (waiting_.empty()) return false;
  if (options_.layout == Layout::kPacked)
    fill_packed(plan);
  else
    fill_rows(plan);
  ++batches_;
  return true;
}

void Packer::take(size_t index, BatchPlan& plan, int64_t& room) {
  const Waiting waiting = waiting_[index];
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  --of_length_[static_cast<size_t>(waiting.tokens)];
  room -= waiting.tokens;
  SetTotals& given = given_[static_cast<size_t>(waiting.sample.set)];
  ++given.sequences;
  given.tokens += waiting.tokens;
  plan.samples.push_back(waiting.sample);
}

// The oldest waiting sample of just that length, which must be there.
void Packer::take_length(int64_t tokens, BatchPlan& plan, int64_t& room) {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.tokens == tokens; });
  ESM_CHECK(found != waiting_.end(), "no waiting sample has {} tokens", tokens);
  take(static_cast<size_t>(found - waiting_.begin()), plan, room);
}

int64_t Packer::longest_waiting() {
  while (longest_ > 0 && of_length_[static_cast<size_t>(longest_)] == 0) --longest_;
  return longest_;
}

void Packer::fill_packed(BatchPlan& plan) {
  int64_t room = options_.budget_tokens;
  take(0, plan, room);
  while (room > 0) {
    refill();
    if (waiting_.empty()) return;
    if (room <= 2 * longest_waiting() && take_exact(plan, room)) return;
    if (waiting_.front().tokens <= room)
      take(0, plan, room);
    else if (!take_best(plan, room))
      return;
  }
}

// The oldest sample that fills the room by itself or with a second one.
bool Packer::take_exact(BatchPlan& plan, int64_t& room) {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const int64_t tokens = waiting_[i].tokens;
    const int64_t rest = room - tokens;
    if (rest < 0 || rest > longest_) continue;
    if (rest > 0 && of_length_[static_cast<size_t>(rest)] <= (rest == tokens ? 1 : 0)) continue;
    take(i, plan, room);
    if (rest > 0) take_length(rest, plan, room);
    return true;
  }
  return false;
}

// The largest sample, or pair of samples, that fits.
bool Packer::take_best(BatchPlan& plan, int64_t& room) {
  const auto there = [&](int64_t tokens) { return of_length_[static_cast<size_t>(tokens)]; };
  int64_t best = 0, first = 0, second = 0;
  for (int64_t tokens = std::min(room, longest_); tokens > 0 && best == 0; --tokens)
    if (there(tokens) > 0) best = first = tokens;
  if (best == 0) return false;
  for (int64_t low = 1, high = first; low <= high;) {
    if (there(low) == 0)
      ++low;
    else if (there(high) == 0 || low + high > room)
      --high;
    else {
      if ((low < high || there(low) > 1) && low + high > best) {
        best = low + high;
        first = high;
        second = low;
      }
      ++low;
    }
  }
  take_length(first, plan, room);
  if (second > 0) take_length(second, plan, room);
  return true;
}

int64_t Packer::row_tokens_of(size_t first, size_t count) const {
  int64_t longest = 0;
  for (size_t i = first; i < first + count; ++i) longest = std::max<int64_t>(longest, waiting_[i].tokens);
  return round_up(longest, kRowMultiple);
}

void Packer::fill_rows(BatchPlan& plan) {
  int64_t room = options_.budget_tokens;
  if (options_.bucketed) {
    if (groups_.empty()) cut_groups();
    const auto count = static_cast<size_t>(groups_.front());
    groups_.pop_front();
    plan.row_tokens = row_tokens_of(0, count);
    for (size_t i = 0; i < count; ++i) take(0, plan, room);
    return;
  }
  while (!waiting_.empty()) {
    const int64_t row = std::max(plan.row_tokens, round_up<int64_t>(waiting_.front().tokens, kRowMultiple));
    if (row * (std::ssize(plan.samples) + 1) > options_.budget_tokens) return;
    plan.row_tokens = row;
    take(0, plan, room);
    refill();
  }
}

// Sorts the window by length, cuts it into batches and puts these in random order.
void Packer::cut_groups() {
  std::vector<Waiting> sorted(waiting_.begin(), waiting_.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Waiting& a, const Waiting& b) { return a.tokens < b.tokens; });
  std::vector<std::pair<size_t, size_t>> groups;  // first, count
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int64_t row = round_up<int64_t>(sorted[i].tokens, kRowMultiple);
    if (groups.empty() || row * static_cast<int64_t>(groups.back().second + 1) > options_.budget_tokens)
      groups.emplace_back(i, 0);
    ++groups.back().second;
  }
  for (size_t i = groups.size(); i > 1; --i) {
    // Counter words that the orders of epochs (sampler.h) never use.
    const uint32_t word = philox(options_.seed, RandomStream::kOrder, static_cast<uint64_t>(batches_),
                                 0x80000000u | static_cast<uint32_t>(i))
                              .v[0];
    std::swap(groups[i - 1], groups[uniform_below(word, static_cast<uint32_t>(i))]);
  }
  waiting_.clear();
  for (const auto& [first, count] : groups) {
    groups_.push_back(static_cast<int64_t>(count));
    for (size_t i = first; i < first + count; ++i) waiting_.push_back(sorted[i]);
  }
}

}  // namespace esm::data
