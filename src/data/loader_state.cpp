// LoaderState as integers: [1, batches, epoch, cursor, samples, fingerprint (2), n, (epoch, position) x n, m, group x
// m].
#include <array>
#include <bit>
#include <charconv>

#include "base/check.h"
#include "data/loader.h"

namespace esm::data {
namespace {

constexpr int64_t kStateVersion = 1;

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

}  // namespace

double LoaderState::epochs() const {
  if (samples == 0) return 0;
  return static_cast<double>(packer.epoch) +
         static_cast<double>(packer.cursor - std::ssize(packer.pending)) / static_cast<double>(samples);
}

std::vector<int64_t> LoaderState::to_integers() const {
  const auto [high, low] = halves(fingerprint);
  std::vector<int64_t> integers = {kStateVersion, packer.batches, packer.epoch, packer.cursor,
                                   samples,       high,           low,          std::ssize(packer.pending)};
  for (const PendingSample& sample : packer.pending) integers.insert(integers.end(), {sample.epoch, sample.position});
  integers.push_back(std::ssize(packer.groups));
  integers.insert(integers.end(), packer.groups.begin(), packer.groups.end());
  return integers;
}

LoaderState LoaderState::from_integers(std::span<const int64_t> integers) {
  Cursor in(integers);
  if (const int64_t version = in.take(); version != kStateVersion)
    fail<CheckpointError>("the data position of the checkpoint has version {}, this program reads {}", version,
                          kStateVersion);
  LoaderState state;
  state.packer.batches = in.take();
  state.packer.epoch = in.take();
  state.packer.cursor = in.take();
  state.samples = in.take();
  const auto high = std::bit_cast<uint64_t>(in.take()), low = std::bit_cast<uint64_t>(in.take());
  state.fingerprint = fmt::format("{:016x}{:016x}", high, low);
  state.packer.pending.resize(static_cast<size_t>(in.take_count(2)));
  for (PendingSample& sample : state.packer.pending) {
    sample.epoch = in.take();
    sample.position = in.take();
  }
  state.packer.groups.resize(static_cast<size_t>(in.take_count(1)));
  for (int64_t& group : state.packer.groups) group = in.take();
  if (!in.done()) fail<CheckpointError>("the data position of the checkpoint has integers too many");
  return state;
}

}  // namespace esm::data
