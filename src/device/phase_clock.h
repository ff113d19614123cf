// Where the time of a step goes: time by kind of operation, for `bench step`.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "device/context.h"
#include "device/stream.h"

namespace esm::device {

struct PhaseTime {
  std::string name;
  double milliseconds = 0;
  int64_t count = 0;
};

/// Pairs of events around operations. While a context has one (CudaQueue::clock), graphs are not replayed.
class PhaseClock {
 public:
  /// Index of the interval, for end(). One that begins within another belongs to that.
  size_t begin(const char* name, StreamHandle stream);
  void end(size_t interval, StreamHandle stream);
  /// Sums by name, in order of first use, of all intervals since the last call. Waits for the device.
  std::vector<PhaseTime> read();

 private:
  struct Interval {
    Interval(const char* name_) : name(name_) {}
    const char* name;
    Event begin{Event::Timing::kOn}, end{Event::Timing::kOn};
  };
  std::vector<Interval> intervals_;
  size_t used_ = 0;
  int depth_ = 0;  // intervals that are open
};

/// The same for a CPU, where operations are over when they return: wall time between begin() and end().
class HostClock {
 public:
  /// One that begins within another belongs to that.
  void begin(const char* name);
  void end();
  /// Sums by name, in order of first use, since the last call.
  std::vector<PhaseTime> read();

  bool on = false;

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<PhaseTime> sums_;
  const char* name_ = nullptr;
  Clock::time_point start_;
  int depth_ = 0;
};

/// One operation, while it lives; nothing without a clock. `name` must live for ever.
class Phase {
 public:
  Phase(const Context& context, const char* name);
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  HostClock* host_;
  PhaseClock* clock_;
  StreamHandle stream_;
  size_t interval_ = 0;
};

}  // namespace esm::device
