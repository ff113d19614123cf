#include "data/samples.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "base/units.h"
#include "data/vocabulary.h"

namespace esm::data {

SampleList::SampleList(Dataset dataset, int64_t max_tokens, Overlong overlong, int64_t window_stride)
    : dataset_(std::move(dataset)),
      max_residues_(max_tokens - kSpecialsPerSequence),
      overlong_(overlong),
      stride_(window_stride) {
  ESM_CHECK(max_residues_ >= 1 && stride_ >= 1, "at most {} tokens, stride {}", max_tokens, window_stride);
  for (int64_t i = 0; i < dataset_.size(); ++i) {
    const int64_t length = dataset_.length(i);
    if (length <= max_residues_) continue;
    ++overlong_sequences_;
    overlong_residues_ += length - max_residues_;
    if (overlong_ != Overlong::kWindow) continue;
    long_sequences_.push_back(i);
    first_extra_.push_back(extra_pieces_);
    extra_pieces_ += pieces(length) - 1;
  }
  if (dataset_.size() == 0) fail<DataError>("the data set is empty");
  if (overlong_ == Overlong::kSkip && overlong_sequences_ == dataset_.size())
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

int64_t SampleList::tokens(int64_t index) const {
  const int64_t residues = piece(index).residues;
  return residues == 0 ? 0 : residues + kSpecialsPerSequence;
}

Sample SampleList::at(uint64_t seed, int64_t epoch, int64_t index) const {
  Sample sample = piece(index);
  if (overlong_ != Overlong::kCrop) return sample;
  const int64_t places = dataset_.length(sample.sequence) - sample.residues + 1;
  if (places > 1) {
    const uint64_t where = static_cast<uint64_t>(epoch) << 40 | static_cast<uint64_t>(sample.sequence);
    sample.start = uniform_below(philox(seed, RandomStream::kCrop, where).v[0], narrow<uint32_t>(places));
  }
  return sample;
}

std::string SampleList::summary() const {
  std::string text =
      fmt::format("{} sequences, {} residues", with_thousands(dataset_.size()), with_thousands(dataset_.residues()));
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
