#include "device/phase_clock.h"

#include <algorithm>

#include "device/cuda_queue.h"

namespace esm::device {

size_t PhaseClock::begin(const char* name, StreamHandle stream) {
  if (depth_++ > 0) return used_ - 1;
  if (used_ == intervals_.size()) intervals_.emplace_back(name);
  intervals_[used_].name = name;
  intervals_[used_].begin.record(stream);
  return used_++;
}

void PhaseClock::end(size_t interval, StreamHandle stream) {
  if (--depth_ == 0) intervals_[interval].end.record(stream);
}

std::vector<PhaseTime> PhaseClock::read() {
  std::vector<PhaseTime> sums;
  if (used_ > 0) intervals_[used_ - 1].end.synchronize();
  for (size_t i = 0; i < used_; ++i) {
    const Interval& interval = intervals_[i];
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const PhaseTime& s) { return s.name == interval.name; });
    if (sum == sums.end()) sum = sums.insert(sums.end(), PhaseTime{.name = interval.name});
    sum->milliseconds += Event::milliseconds_between(interval.begin, interval.end);
    ++sum->count;
  }
  used_ = 0;
  return sums;
}

Phase::Phase(const Context& context, const char* name)
    : clock_(context.cuda ? context.cuda->clock.get() : nullptr), stream_(context.stream()) {
  if (clock_ != nullptr) interval_ = clock_->begin(name, stream_);
}

Phase::~Phase() {
  if (clock_ != nullptr) clock_->end(interval_, stream_);
}

}  // namespace esm::device
