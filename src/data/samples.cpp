#include "data/samples.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "base/units.h"
#include "data/draws.h"
#include "data/vocabulary.h"

namespace esm::data {

SampleList::SampleList(Dataset dataset, const SampleOptions& options, std::shared_ptr<const ClusterIndex> clusters)
    : dataset_(std::move(dataset)),
      clusters_(std::move(clusters)),
      max_residues_(options.max_tokens - kSpecialsPerSequence),
      overlong_(options.overlong),
      stride_(options.window_stride),
      first_sequence_(options.first_sequence) {
  ESM_CHECK(max_residues_ >= 1 && stride_ >= 1, "at most {} tokens, stride {}", options.max_tokens, stride_);
  ESM_CHECK(clusters_ == nullptr || overlong_ != Overlong::kWindow, "windows of clusters");
  const auto look_at = [this](int64_t i) {
    const int64_t length = dataset_.length(i);
    if (length <= max_residues_) return;
    ++overlong_sequences_;
    overlong_residues_ += length - max_residues_;
    if (overlong_ != Overlong::kWindow) return;
    long_sequences_.push_back(i);
    first_extra_.push_back(extra_pieces_);
    extra_pieces_ += pieces(length) - 1;
  };
  int64_t drawn_from = dataset_.size();
  if (clusters_ != nullptr) {
    drawn_from = std::ssize(clusters_->all_members());
    for (const uint32_t i : clusters_->all_members()) look_at(i);
  } else {
    for (int64_t i = 0; i < dataset_.size(); ++i) look_at(i);
  }
  if (dataset_.size() == 0) fail<DataError>("the data set is empty");
  if (overlong_ == Overlong::kSkip && overlong_sequences_ == drawn_from)
    fail<DataError>("all {} sequences are above {} residues and data.overlong is skip: nothing is left to train on",
                    overlong_sequences_, max_residues_);
}

int64_t SampleList::pieces(int64_t length) const {
  return length <= max_residues_ ? 1 : 1 + (length - max_residues_ + stride_ - 1) / stride_;
}

Sample SampleList::piece(int64_t index) const {
  if (index < dataset_.size()) {
    const int64_t length = dataset_.length(index);
    if (length > max_residues_ && overlong_ == Overlong::kSkip) return {index, 0, 0};
    return {index, 0, std::min(length, max_residues_)};
  }
  const int64_t extra = index - dataset_.size();
  const auto after = std::upper_bound(first_extra_.begin(), first_extra_.end(), extra);
  const auto which = static_cast<size_t>(after - first_extra_.begin()) - 1;
  const int64_t sequence = long_sequences_[which];
  const int64_t number = extra - first_extra_[which] + 1;
  return {sequence, std::min(number * stride_, dataset_.length(sequence) - max_residues_), max_residues_};
}

int64_t SampleList::member(uint64_t seed, int64_t epoch, int64_t cluster) const {
  const std::span<const uint32_t> members = clusters_->members(cluster);
  const uint32_t word = philox(seed, RandomStream::kMember, epoch_counter(epoch, first_sequence_ + cluster)).v[0];
  const auto fits = [this](uint32_t i) { return overlong_ != Overlong::kSkip || dataset_.length(i) <= max_residues_; };
  const auto n = static_cast<uint32_t>(std::count_if(members.begin(), members.end(), fits));
  if (n == 0) return members.front();  // piece() leaves it out
  if (n == members.size()) return members[uniform_below(word, n)];
  auto chosen = std::find_if(members.begin(), members.end(), fits);
  for (uint32_t left = uniform_below(word, n); left > 0; --left) chosen = std::find_if(chosen + 1, members.end(), fits);
  return *chosen;
}

int64_t SampleList::tokens(uint64_t seed, int64_t epoch, int64_t index) const {
  const int64_t residues = piece(clusters_ != nullptr ? member(seed, epoch, index) : index).residues;
  return residues == 0 ? 0 : residues + kSpecialsPerSequence;
}

Sample SampleList::at(uint64_t seed, int64_t epoch, int64_t index) const {
  Sample sample = piece(clusters_ != nullptr ? member(seed, epoch, index) : index);
  if (overlong_ != Overlong::kCrop) return sample;
  const int64_t places = dataset_.length(sample.sequence) - sample.residues + 1;
  if (places > 1) {
    const uint64_t where = epoch_counter(epoch, first_sequence_ + sample.sequence);
    sample.start = uniform_below(philox(seed, RandomStream::kCrop, where).v[0], narrow<uint32_t>(places));
  }
  return sample;
}

std::string SampleList::summary() const {
  std::string text =
      fmt::format("{} sequences, {} residues", with_thousands(dataset_.size()), with_thousands(dataset_.residues()));
  if (clusters_ != nullptr)
    text += fmt::format("; an epoch draws one member of each of {} clusters", with_thousands(clusters_->size()));
  if (overlong_sequences_ == 0) return text;
  text += fmt::format("; {} above {} residues: ", with_thousands(overlong_sequences_), with_thousands(max_residues_));
  switch (overlong_) {
    case Overlong::kCrop: return text + "a random piece of each is used, another one each epoch";
    case Overlong::kTruncate:
      return text + fmt::format("cut at the end, {} residues are not used", with_thousands(overlong_residues_));
    case Overlong::kWindow:
      return text + fmt::format("read as overlapping pieces, {} samples in all", with_thousands(size()));
    case Overlong::kSkip: return text + "skipped";
  }
  return text;
}

}  // namespace esm::data
