// LoaderState as integers, version 2: [2, batches, draws, fingerprint (2), sets, (epoch, cursor, samples, sequences,
// tokens) x sets, n, (epoch, position, set) x n, m, group x m].
// Version 1, of checkpoints from before there were mixtures: [1, batches, epoch, cursor, samples, fingerprint (2), n,
// (epoch, position) x n, m, group x m].
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "base/check.h"
#include "data/loader.h"

namespace esm::data {
namespace {

constexpr int64_t kOneSetVersion = 1, kStateVersion = 2;

std::array<int64_t, 2> halves(const std::string& fingerprint) {
  std::array<uint64_t, 2> words{};
  ESM_CHECK(fingerprint.size() == 32, "fingerprint '{}'", fingerprint);
  for (size_t i = 0; i < 2; ++i)
    std::from_chars(fingerprint.data() + 16 * i, fingerprint.data() + 16 * (i + 1), words[i], 16);
  return {std::bit_cast<int64_t>(words[0]), std::bit_cast<int64_t>(words[1])};
}

class Cursor {
 public:
  explicit Cursor(std::span<const int64_t> integers) : left_(integers) {}
  int64_t take() {
    if (left_.empty()) fail<CheckpointError>("the data position of the checkpoint is cut short");
    const int64_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  // A number of items of `each` integers that must follow.
  int64_t take_count(int64_t each) {
    const int64_t n = take();
    if (n < 0 || n > std::ssize(left_) / each)
      fail<CheckpointError>("the data position of the checkpoint is damaged: {} items", n);
    return n;
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<const int64_t> left_;
};

std::string take_fingerprint(Cursor& in) {
  const auto high = std::bit_cast<uint64_t>(in.take()), low = std::bit_cast<uint64_t>(in.take());
  return fmt::format("{:016x}{:016x}", high, low);
}

void take_one_set(Cursor& in, LoaderState& state) {
  SetPosition at;
  at.epoch = in.take();
  at.cursor = in.take();
  state.packer.draws.sets = {at};
  state.packer.given.resize(1);  // was not counted
  state.samples = {in.take()};
  state.fingerprint = take_fingerprint(in);
}

void take_sets(Cursor& in, LoaderState& state) {
  state.packer.draws.draws = in.take();
  state.fingerprint = take_fingerprint(in);
  for (int64_t sets = in.take_count(5); sets > 0; --sets) {
    SetPosition& at = state.packer.draws.sets.emplace_back();
    at.epoch = in.take();
    at.cursor = in.take();
    state.samples.push_back(in.take());
    SetTotals& given = state.packer.given.emplace_back();
    given.sequences = in.take();
    given.tokens = in.take();
  }
}

}  // namespace

double LoaderState::epochs(size_t set) const {
  const SetPosition& at = packer.draws.sets[set];
  const auto waits = std::count_if(packer.pending.begin(), packer.pending.end(),
                                   [set](const Draw& draw) { return draw.set == static_cast<int64_t>(set); });
  return static_cast<double>(at.epoch) + static_cast<double>(at.cursor - waits) / static_cast<double>(samples[set]);
}

double LoaderState::epochs() const {
  double given = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    given += epochs(i) * static_cast<double>(samples[i]);
    all += static_cast<double>(samples[i]);
  }
  return all > 0 ? given / all : 0;
}

std::vector<int64_t> LoaderState::to_integers() const {
  const auto [high, low] = halves(fingerprint);
  std::vector<int64_t> integers = {kStateVersion, packer.batches, packer.draws.draws, high, low, std::ssize(samples)};
  for (size_t i = 0; i < samples.size(); ++i)
    integers.insert(integers.end(), {packer.draws.sets[i].epoch, packer.draws.sets[i].cursor, samples[i],
                                     packer.given[i].sequences, packer.given[i].tokens});
  integers.push_back(std::ssize(packer.pending));
  for (const Draw& draw : packer.pending) integers.insert(integers.end(), {draw.epoch, draw.position, draw.set});
  integers.push_back(std::ssize(packer.groups));
  integers.insert(integers.end(), packer.groups.begin(), packer.groups.end());
  return integers;
}

LoaderState LoaderState::from_integers(std::span<const int64_t> integers) {
  Cursor in(integers);
  const int64_t version = in.take();
  if (version != kStateVersion && version != kOneSetVersion)
    fail<CheckpointError>("the data position of the checkpoint has version {}, this program reads {} and {}", version,
                          kOneSetVersion, kStateVersion);
  LoaderState state;
  state.packer.batches = in.take();
  if (version == kOneSetVersion)
    take_one_set(in, state);
  else
    take_sets(in, state);
  state.packer.pending.resize(static_cast<size_t>(in.take_count(version == kOneSetVersion ? 2 : 3)));
  for (Draw& draw : state.packer.pending) {
    draw.epoch = in.take();
    draw.position = in.take();
    if (version != kOneSetVersion) draw.set = in.take();
  }
  state.packer.groups.resize(static_cast<size_t>(in.take_count(1)));
  for (int64_t& group : state.packer.groups) {
    group = in.take();
    if (group <= 0)
      fail<CheckpointError>("the data position of the checkpoint is damaged: a batch of {} samples", group);
  }
  if (!in.done()) fail<CheckpointError>("the data position of the checkpoint has integers too many");
  return state;
}

}  // namespace esm::data
