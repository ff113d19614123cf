#include "device/phase_clock.h"

#include <algorithm>
#include <utility>

#include "device/cuda_queue.h"

namespace esm::device {
namespace {

/// The sum of this name, added if it is not there.
PhaseTime& sum_of(std::vector<PhaseTime>& sums, const char* name) {
  const auto sum = std::find_if(sums.begin(), sums.end(), [&](const PhaseTime& s) { return s.name == name; });
  return sum != sums.end() ? *sum : sums.emplace_back(PhaseTime{.name = name});
}

}  // namespace

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
    PhaseTime& sum = sum_of(sums, interval.name);
    sum.milliseconds += Event::milliseconds_between(interval.begin, interval.end);
    ++sum.count;
  }
  used_ = 0;
  return sums;
}

void HostClock::begin(const char* name) {
  if (depth_++ > 0) return;
  name_ = name;
  start_ = Clock::now();
}

void HostClock::end() {
  if (--depth_ > 0) return;
  PhaseTime& sum = sum_of(sums_, name_);
  sum.milliseconds += std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  ++sum.count;
}

std::vector<PhaseTime> HostClock::read() { return std::exchange(sums_, {}); }

Phase::Phase(const Context& context, const char* name)
    : host_(context.host_clock && context.host_clock->on ? context.host_clock.get() : nullptr),
      clock_(context.cuda ? context.cuda->clock.get() : nullptr),
      stream_(context.stream()) {
  if (host_ != nullptr) host_->begin(name);
  if (clock_ != nullptr) interval_ = clock_->begin(name, stream_);
}

Phase::~Phase() {
  if (host_ != nullptr) host_->end();
  if (clock_ != nullptr) clock_->end(interval_, stream_);
}

}  // namespace esm::device
